"""Images shared by encoders: fewer decodes, the same bits."""

import tiny_suite

from crs_assets.stages import image_source
from crs_assets.stages.data import DatasetIndex
from crs_assets.stages.encoders import DegradedFeatures, EncoderWeights, Features, read_degraded, read_features

SKIN = "tiny-skin"
ENCODERS = ("vit-a", "vit-b")


def _encode(home, monkeypatch, cache_bytes):
    """Features of two encoders that take images alike, and how many images each of them decoded."""
    decoded = []
    load_image = image_source.load_image

    def counted(*arguments):
        decoded.append(arguments)
        return load_image(*arguments)

    monkeypatch.setattr(image_source, "load_image", counted)
    bench = tiny_suite.open_bench(home, image_cache_bytes=cache_bytes)
    DatasetIndex().ensure(bench, SKIN)
    found, counts = {}, []
    for encoder in ENCODERS:
        EncoderWeights().ensure(bench, encoder)
        for stage in (Features(), DegradedFeatures()):
            stage.ensure(bench, encoder, SKIN)
        found[encoder] = {"clean": read_features(bench, encoder, SKIN), **read_degraded(bench, encoder, SKIN)}
        counts.append(len(decoded))
        decoded.clear()
    monkeypatch.setattr(image_source, "load_image", load_image)
    bytes_of = {name: {key: values.tobytes() for key, (_, values) in of.items()} for name, of in found.items()}
    return bytes_of, counts


def test_a_second_encoder_decodes_nothing_and_gets_the_same_bits(make_home, monkeypatch):
    kept, of_kept = _encode(make_home(bare=True), monkeypatch, 10**9)
    alone, of_alone = _encode(make_home(bare=True), monkeypatch, 0)
    assert kept == alone
    assert of_alone[0] == of_alone[1] > 0
    assert of_kept == [of_alone[0], 0]


def test_only_what_happens_to_pixels_before_normalisation_makes_another_geometry(bench):
    preprocessing = bench.suite.encoders["vit-a"].preprocessing
    renormalised = preprocessing.model_copy(update={"mean": (0.1, 0.2, 0.3)})
    resampled = preprocessing.model_copy(update={"interpolation": "lanczos"})
    assert renormalised.geometry == preprocessing.geometry
    assert resampled.geometry != preprocessing.geometry
