"""``crs encoder add``: accept an encoder, or the untrained twin of one, into a suite."""

from pathlib import Path

from crs_assets.resources.artifact_store import write_atomic
from crs_assets.resources.home import Home, home_path
from crs_assets.science.encoders import load_encoder_spec, untrained_twin
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
    home = Home(home_path())
    file = Path(name) if str(name).endswith(".toml") else find_entry("encoders", str(name), home.catalog)
    spec, text = load_encoder_spec(file), file.read_text(encoding="utf-8")
    if untrained is not None:
        try:
            spec = untrained_twin(spec, untrained)
        except ValueError as error:
            raise CatalogError(str(error)) from error
        text = encoder_toml(spec)
    loaded = home.load_suite(suite)
    place = home.dropins(loaded.id) / f"{spec.id}.toml"
    if place.exists() and place.read_text(encoding="utf-8") == text:
        return f"{spec.id} is already in suite {loaded.id}."
    if spec.id in loaded.encoders:
        raise CatalogError(
            f"suite {loaded.id} already has an encoder {spec.id!r} with other content; an id is never reused. "
            "New weights of the same encoder are a new entry with a new id."
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(place, text)
    return (
        f"{spec.id} is in suite {loaded.id}. Run exactly its partitions: crs run --suite {loaded.id} "
        f"--encoder {spec.id}  (or start the sensor `new_encoders` in the UI)."
    )
