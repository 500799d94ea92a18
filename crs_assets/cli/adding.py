"""``crs encoder add``: accept an encoder into a suite."""

from pathlib import Path

from crs_assets.resources.artifact_store import write_atomic
from crs_assets.resources.home import Home, home_path
from crs_assets.science.encoders import load_encoder_spec
from crs_assets.science.toml_models import CatalogError


def add_encoder(file: Path, suite: str) -> str:
    """Check an encoder's file and put it into the suite's drop-in folder; says what to do next.

    Raises:
        CatalogError: If the file cannot be used, or its id is taken with other content.
    """
    home = Home(home_path())
    spec = load_encoder_spec(file)
    loaded = home.load_suite(suite)
    text = file.read_text(encoding="utf-8")
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
