"""``crs encoder add``: accept an encoder, or the untrained twin of one, into a suite."""

from pathlib import Path

from crs_assets.cli.session import open_bench
from crs_assets.resources.artifact_store import write_atomic
from crs_assets.resources.bench import Bench
from crs_assets.resources.home import Home
from crs_assets.science.encoders import (
    AbsentWeightsError,
    EncoderSpec,
    WeightsError,
    load_encoder_spec,
    untrained_twin,
)
from crs_assets.science.encoders.releases import encoder_toml
from crs_assets.science.suite import find_entry
from crs_assets.science.toml_models import CatalogError


def add_encoder(name: str | Path, suite: str, untrained: int | None = None) -> str:
    """Check an encoder's entry and put it into the suite's drop-in folder; says what to do next.

    Args:
        name: Path of its TOML, or its id in the catalogue.
        suite: Suite id, or path of its TOML.
        untrained: Add its twin with random weights of this seed instead, as a null control.

    Raises:
        CatalogError: If the entry cannot be used, or its id is taken with other content.
    """
    bench = open_bench(suite)
    home, loaded = bench.home, bench.suite
    file = Path(name) if str(name).endswith(".toml") else find_entry("encoders", str(name), home.catalog)
    spec, text = load_encoder_spec(file), file.read_text(encoding="utf-8")
    if untrained is not None:
        try:
            spec = untrained_twin(spec, untrained)
        except ValueError as error:
            raise CatalogError(str(error)) from error
        text = encoder_toml(spec)
    place = home.dropins(loaded.id) / f"{spec.id}.toml"
    if place.exists() and place.read_text(encoding="utf-8") == text:
        return f"{spec.id} is already in suite {loaded.id}."
    if loaded.encoders.get(spec.id) == spec:
        return f"{spec.id} is already in suite {loaded.id}."
    if spec.id in loaded.encoders and not (place.exists() and _is_unused(home, loaded.id, spec.id)):
        raise CatalogError(
            f"suite {loaded.id} already has an encoder {spec.id!r} with other content; an id is never reused. "
            "New weights of the same encoder are a new entry with a new id."
        )
    _check_weights(bench, spec)
    _check_network(spec)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(place, text)
    return (
        f"{spec.id} is in suite {loaded.id}. Run exactly its partitions: {loaded.command('run')} "
        f"--encoder {spec.id}  (or start the sensor `new_encoders` in the UI)."
    )


def _is_unused(home: Home, suite: str, encoder: str) -> bool:
    """Whether nothing has been made under an id, so that a slip in its file may still be corrected."""
    return not any((home.artifacts / suite).glob(f"*/{encoder}"))


def _check_weights(bench: Bench, spec: EncoderSpec) -> None:
    """Refuse weights that are here and are not those of the entry; absent ones may come later."""
    try:
        bench.weights.hashes(spec)
    except AbsentWeightsError:
        return
    except WeightsError as error:
        raise CatalogError(
            f"{error} Nothing was added; correct [weights] of the entry if the files are right."
        ) from error


def _check_network(spec: EncoderSpec) -> None:
    """Build the network without a byte of weights, and compare it with what the entry says of it."""
    from crs_assets.science.encoders.counting import count_network

    try:
        counts = count_network(spec)
    # Whatever timm or a layer objects to, the entry describes no network that can run.
    except Exception as error:
        raise CatalogError(f"{spec.id}: its [architecture] and [tap] give no network, or another: {error}") from error
    if counts.dim != spec.tap.dim:
        raise CatalogError(f"{spec.id}: tap.dim is {spec.tap.dim}, the network gives {counts.dim}; correct the entry.")
