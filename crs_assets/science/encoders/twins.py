"""The untrained twin of an encoder: the same network on the same input, with random weights that a seed fixes."""

from crs_assets.science.encoders.spec import EncoderSpec


def untrained_twin(spec: EncoderSpec, seed: int) -> EncoderSpec:
    """An encoder's null control: what its architecture and preprocessing reach without any training.

    Args:
        spec: A trained encoder.
        seed: Of the random initial weights.

    Returns:
        A control of id ``<id>-untrained-<seed>``. Taps, input and absent cells are the encoder's; there is no file, so
        no gate, and nothing of the file's facts is unverified.

    Raises:
        ValueError: If the encoder is no trained network.
    """
    if spec.architecture.loader == "pixels" or spec.untrained_seed is not None:
        raise ValueError(f"{spec.id} has no trained weights, so it has no untrained twin.")
    document = spec.model_dump(mode="json")
    return EncoderSpec.model_validate(
        document
        | {
            "id": f"{spec.id}-untrained-{seed}",
            "title": f"{spec.title}, untrained (seed {seed})",
            "family": "control",
            "specialty": None,
            "role": "control",
            "untrained_seed": seed,
            "licence": "none: random weights",
            "gated": False,
            "unverified": [],
            # Names and grids of a published file mean nothing here.
            "architecture": {**document["architecture"], "key_map": "none", "position_resampling": "bicubic"},
            "weights": {"source": "none"},
        }
    )
