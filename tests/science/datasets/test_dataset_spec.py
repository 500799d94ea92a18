from pathlib import Path

import pytest

from crs_assets.science.datasets import READERS, load_dataset_spec
from crs_assets.science.datasets.spec import READER_OPTIONS, normalise_name
from crs_assets.science.toml_models import CatalogError

CATALOG = Path(__file__).parents[3] / "crs_assets" / "catalog" / "datasets"
SHIPPED = sorted(path.stem for path in CATALOG.glob("*.toml"))


@pytest.fixture
def entry(tmp_path):
    def write(**changes):
        facts = {
            "id": "mine",
            "title": "Mine",
            "specialty": "other",
            "task": "multiclass",
            "classes": ["a", "b"],
            "reader": "manifest",
            "group": "patient",
            "label_source": "biopsy",
            "licence": "own",
            "access": "open",
            "citation": "Me, 2026",
        } | changes
        path = tmp_path / "mine.toml"
        lines = [f"{key} = {_toml(value)}" for key, value in facts.items() if value is not None]
        path.write_text("\n".join(lines))
        return path

    return write


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {_toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_entry_loads(name):
    spec = load_dataset_spec(CATALOG / f"{name}.toml")
    assert spec.id == name
    assert spec.reader in READERS
    assert (spec.phantom is not None) == ("procedural phantoms" in spec.title)
    if spec.transfer_target:
        target = load_dataset_spec(CATALOG / f"{spec.transfer_target}.toml")
        assert target.role == "target"
        assert set(spec.classes) & set(target.classes) or set(target.label_map.values()) <= {
            *spec.classes,
            *spec.derived,
        }
    assert spec.phantom or spec.obtain


def test_the_articles_counts():
    # 191,027 frontal images of train.csv and 202 of valid.csv; patients 64,534 and 200.
    chexpert = load_dataset_spec(CATALOG / "chexpert.toml")
    assert (chexpert.expected.images, chexpert.expected.groups) == (191_027 + 202, 64_534 + 200)
    assert len(chexpert.classes) == 14
    isic = load_dataset_spec(CATALOG / "isic2019.toml")
    assert isic.expected.images == 25_331 == sum(isic.expected.positives.values())
    assert isic.expected.groups == 11_847 + 2_084
    aptos = load_dataset_spec(CATALOG / "aptos2019.toml")
    assert aptos.expected.images == 3_662 == sum(aptos.expected.positives.values())


def test_every_layout_has_a_reader_and_options():
    assert set(READERS) == set(READER_OPTIONS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "Mine"}, "id"),
        ({"id": "other"}, "make them equal"),
        ({"titel": "x"}, "titel"),
        ({"classes": ["a"]}, "at least 2 classes"),
        ({"classes": ["a", "A"]}, "repeat"),
        ({"classes": ["a", "b "]}, "white space"),
        ({"reader": "nih"}, "reader"),
        ({"reader_options": {"split": "test"}}, "split"),
        ({"reader": "mimic_cxr_jpg", "reader_options": {"split": "val"}}, "split"),
        ({"citation": "https://example.org"}, "web address"),
        ({"age_bins": [60, 40]}, "rise"),
        ({"transfer_target": "mine"}, "its own transfer target"),
        ({"role": "target", "transfer_target": "b"}, "no transfer_target of its own"),
        ({"role": "target", "test_split": "official"}, "evaluated as a whole"),
        ({"test_split": "published"}, "test_split"),
        ({"expected": {"positives": {"c": 3}}}, "no classes"),
        ({"min_side": 0}, "min_side"),
        ({"obtain": "www.example.org"}, "web address"),
        ({"zenodo": 7}, "that the reader medmnist reads"),
        ({"derived": {"any": ["a", "c"]}}, r"derived.any names \['c'\]"),
        ({"derived": {"any": []}}, "must name classes"),
        ({"derived": {"A": ["b"]}}, "name of a class"),
        ({"derived": {"any": ["a", "b"]}}, "would always hold"),
        ({"role": "target", "derived": {"any": ["a"]}}, "belong to a source"),
        ({"label_map": {"a": "x"}}, "belongs to a target"),
        ({"role": "target", "label_map": {"c": "x"}}, r"label_map names \['c'\]"),
        ({"licence": None}, "licence"),
    ],
)
def test_unusable_entries_are_refused(entry, changes, message):
    with pytest.raises(CatalogError, match=message):
        load_dataset_spec(entry(**changes))


def test_all_problems_of_an_entry_are_told_at_once(entry):
    with pytest.raises(CatalogError) as caught:
        load_dataset_spec(entry(access="free", group="person", specialty="eye"))
    assert all(key in str(caught.value) for key in ("access", "group", "specialty"))


def test_wording_is_no_content(entry):
    spec = load_dataset_spec(entry())
    reworded = load_dataset_spec(entry(title="Other words", licence="other", citation="You, 2026"))
    filtered = load_dataset_spec(entry(reader_options={"views": ["PA"]}))
    content = [one.model_dump(include=set(one.content_fields())) for one in (spec, reworded, filtered)]
    assert content[0] == content[1] != content[2]
    official = load_dataset_spec(entry(test_split="official"))
    assert official.model_dump(include=set(official.content_fields())) != content[0]
    derived = load_dataset_spec(entry(derived={"any": ["a"]}))
    assert derived.model_dump(include=set(derived.content_fields())) != content[0]


def test_names_are_compared_without_case_and_spacing():
    assert normalise_name(" Pleural_Effusion ") == normalise_name("pleural  EFFUSION")
    assert normalise_name("Lung Lesion") != normalise_name("Lung Opacity")
