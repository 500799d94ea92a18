"""What a catalogue entry may say, and what its fingerprint depends on."""

import tomllib
from pathlib import Path

import pytest

from crs_assets.science.encoders.spec import ENCODER_FOLDER, EncoderSpec, fingerprint, load_encoder_spec
from crs_assets.science.toml_models import CatalogError, validate

EXAMPLES = Path(__file__).parents[3] / "examples" / "new-release"
HASHES = {"model.safetensors": "a" * 64}


@pytest.mark.parametrize(
    "path", [*sorted(ENCODER_FOLDER.glob("*.toml")), *EXAMPLES.glob("*.toml")], ids=lambda p: p.stem
)
def test_every_catalogue_entry_is_valid_and_named_as_its_file(path):
    assert load_encoder_spec(path).id == path.stem


def test_the_example_release_is_not_in_the_catalogue_yet():
    held_back = {path.name for path in EXAMPLES.glob("*.toml")}
    assert held_back
    assert held_back.isdisjoint(path.name for path in ENCODER_FOLDER.glob("*.toml"))


def test_a_file_named_otherwise_than_its_id_is_refused(tmp_path):
    source = (ENCODER_FOLDER / "pixels-16.toml").read_text(encoding="utf-8")
    (tmp_path / "pixels-17.toml").write_text(source, encoding="utf-8")
    with pytest.raises(CatalogError, match=r"named 'pixels-17' but its id is 'pixels-16'"):
        load_encoder_spec(tmp_path / "pixels-17.toml")


@pytest.mark.parametrize(
    ("table", "changes", "problem"),
    [
        (None, {"id": "Tiny"}, "lower-case letters"),
        (None, {"id": "a/b"}, "lower-case letters"),
        (None, {"id": "a..b"}, "partition ranges"),
        (None, {"id": "a...b"}, "partition ranges"),
        (None, {"license": "MIT"}, "license"),
        (None, {"family": "control"}, "family and role"),
        (None, {"family": "specialist"}, "specialty"),
        (None, {"untrained_seed": 0}, "untrained_seed"),
        ("architecture", {"key_map": "nope"}, "unknown key map"),
        ("architecture", {"arch": None}, "timm model name"),
        ("weights", {"package": "timm"}, "takes exactly"),
        ("weights", {"file": "../secret.pth"}, "leaves its folder"),
        ("weights", {"sha256": "abc"}, "sha256"),
        ("weights", {"source": "none", "repo": None, "file": None}, "no revision"),
        ("preprocessing", {"resize_to": 40}, "resize_to goes with"),
        ("preprocessing", {"resize": "shortest", "resize_to": 31}, "at least input_size"),
        ("preprocessing", {"std": [0.5, 0.0, 0.5]}, "std must be positive"),
        ("preprocessing", {"antialias": False, "interpolation": "lanczos"}, "antialias = false"),
        ("tap", {"block": 5}, "block is 1..4"),
        ("tap", {"block": 2, "pool": "map"}, "takes a pool of"),
        ("tap", {"prefix_tokens": 0}, "needs a class token"),
        ("tap", {"stages": ["a"]}, "1 stages for 4 blocks"),
        ("tap", {"pool": "flatten"}, "for pixels"),
    ],
)
def test_a_contradictory_entry_is_refused_with_its_reason(document, table, changes, problem):
    (document if table is None else document[table]).update(changes)
    with pytest.raises(CatalogError, match=problem):
        validate(EncoderSpec, document, source="tiny.toml")


@pytest.mark.parametrize(
    "changes",
    [{"title": "Other"}, {"licence": "other"}, {"citation": "other"}, {"absent": {"aptos2019": "no"}}, {"id": "b"}],
)
def test_what_people_read_does_not_change_the_fingerprint(make_spec, changes):
    assert fingerprint(make_spec(**changes), HASHES) == fingerprint(make_spec(), HASHES)


def test_where_the_weights_lie_does_not_change_the_fingerprint(make_spec):
    moved = make_spec(weights={"source": "file", "path": "copies/weights.safetensors"})
    assert fingerprint(moved, {"weights.safetensors": "a" * 64}) == fingerprint(make_spec(), HASHES)


@pytest.mark.parametrize(
    "changes",
    [
        {"preprocessing": {"mean": [0.5, 0.5, 0.5]}},
        {"preprocessing": {"interpolation": "bilinear"}},
        {"preprocessing": {"antialias": False}},
        {"preprocessing": {"colour": "grey"}},
        {"preprocessing": {"pre_pad": 320}},
        {"tap": {"pool": "gap"}},
        {"tap": {"block": 2}},
        {"architecture": {"position_resampling": "bicubic-antialias"}},
        {"architecture": {"kwargs": {"img_size": 32, "act_layer": "gelu_tanh"}}},
        {"weights": {"source": "none"}, "untrained_seed": 0},
    ],
)
def test_what_decides_features_changes_the_fingerprint(make_spec, changes):
    assert fingerprint(make_spec(**changes), HASHES) != fingerprint(make_spec(), HASHES)


def test_the_fingerprint_follows_weights_and_seed(make_spec):
    assert fingerprint(make_spec(), HASHES) != fingerprint(make_spec(), {"model.safetensors": "b" * 64})
    twins = [make_spec(weights={"source": "none"}, untrained_seed=seed) for seed in (0, 1)]
    assert fingerprint(twins[0], {}) != fingerprint(twins[1], {})


def test_catalogue_entries_differ_in_their_fingerprints():
    paths = [*ENCODER_FOLDER.glob("*.toml"), *EXAMPLES.glob("*.toml")]
    prints = {}
    for path in paths:
        spec = load_encoder_spec(path)
        sha = spec.weights.sha256
        place = tomllib.loads(path.read_text(encoding="utf-8"))["weights"]
        content = {"file": sha if isinstance(sha, str) else str(place)}
        prints.setdefault(fingerprint(spec, content), []).append(path.stem)
    assert [names for names in prints.values() if len(names) > 1] == []
