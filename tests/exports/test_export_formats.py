"""Formats of other tools: read by their own types where they are installed, else held against the specification."""

import json
import math
import re
from dataclasses import replace

import polars as pl
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from crs_assets.exports.croissant import REQUIRED, croissant, lacking
from crs_assets.exports.eval_results import eval_results_yaml
from crs_assets.exports.exporting import FORMATS, export_files
from crs_assets.exports.mteb_results import task_result
from crs_assets.exports.publication import address, creators, licence, year
from crs_assets.exports.results import ExportError, ImageSetFacts
from crs_assets.science.datasets import load_dataset_spec
from crs_assets.science.protocol import AXES
from crs_assets.science.suite import CATALOG_FOLDER
from crs_assets.stages.probes import read_runs
from crs_assets.stages.scores import read_profile, read_score

KAGGLE = "https://www.kaggle.com/competitions/aptos2019-blindness-detection"
ENTRIES = sorted((CATALOG_FOLDER / "datasets").glob("*.toml"))


def entry(name):
    return load_dataset_spec(CATALOG_FOLDER / "datasets" / f"{name}.toml")


# Hugging Face


def test_eval_results_are_read_by_the_hubs_own_library(exported, finished):
    (path,) = (exported / "eval-results" / "vit-a" / ".eval_results").iterdir()
    entries = parse_eval_result_entries(yaml.safe_load(path.read_text()))
    values = {item.task_id: item.value for item in entries}
    assert {item.dataset_id for item in entries} == {"tests/tiny-benchmark"}
    score, profile = read_score(finished, "vit-a"), read_profile(finished, "vit-a")
    assert values["tiny-v1/all/crs"] == score["readings"]["tiny-v1"]["aggregate"]["crs"]
    for axis in AXES:
        assert values[f"tiny-v1/tiny-skin/{axis}"] == profile["datasets"]["tiny-skin"]["tiny-v1"]["raw"][axis]
    assert len(values) == len(entries)
    assert all(isinstance(value, float) and math.isfinite(value) for value in values.values())
    assert all(score["panel"] in item.notes and "weights" in item.notes for item in entries)


def test_eval_results_have_the_keys_of_the_format_and_no_others(exported):
    for path in (exported / "eval-results").rglob("*.yaml"):
        for item in yaml.safe_load(path.read_text()):
            assert set(item) == {"dataset", "value", "notes"}
            assert set(item["dataset"]) == {"id", "task_id"}


def test_what_is_not_estimable_has_no_entry(results):
    profile = dict(results.profiles["vit-a"])
    broken = json.loads(json.dumps(profile["datasets"]))
    broken["tiny-skin"]["tiny-v1"]["raw"]["robustness"] = None
    changed = replace(
        results, profiles={**results.profiles, "vit-a": {**profile, "datasets": broken}}, scores={}, panel=""
    )
    tasks = [item["dataset"]["task_id"] for item in yaml.safe_load(eval_results_yaml(changed, "vit-a", "a/b"))]
    assert "tiny-v1/tiny-skin/robustness" not in tasks
    assert "tiny-v1/tiny-skin/calibration" in tasks
    assert not [task for task in tasks if task.endswith("crs")]


def test_a_benchmark_that_is_no_id_of_the_hub_is_refused(results):
    with pytest.raises(ExportError, match="owner/name"):
        eval_results_yaml(results, "vit-a", "not an id")


# MTEB


def check_task_result(document):
    """What mteb's TaskResult and its validators ask for, mteb 2.26 (results/task_result.py)."""
    optional = {"kg_co2_emissions", "date", "evaluation_phases"}
    assert {"dataset_revision", "task_name", "mteb_version", "scores", "evaluation_time"} <= set(document)
    assert set(document) - optional == {"dataset_revision", "task_name", "mteb_version", "scores", "evaluation_time"}
    assert isinstance(document["dataset_revision"], str)
    assert isinstance(document["task_name"], str)
    for split, entries in document["scores"].items():
        assert isinstance(split, str)
        for scores in entries:
            assert isinstance(scores["main_score"], float)
            assert isinstance(scores["hf_subset"], str)
            assert isinstance(scores["languages"], list)
            assert all(re.fullmatch(r"[a-z]{3}-[A-Z][a-z]{3}", language) for language in scores["languages"])


def test_every_task_result_has_mtebs_form_and_place(exported, results):
    paths = list((exported / "mteb" / "results").rglob("*.json"))
    for path in paths:
        document = json.loads(path.read_text())
        check_task_result(document)
        encoder, revision, name = path.relative_to(exported / "mteb" / "results").parts
        assert name == f"{document['task_name']}.json"
        assert revision == results.profiles[encoder]["weights"]
    # Four encoders on two data sets, one cell absent, no control.
    assert len(paths) == 7


def test_main_score_is_the_mean_auroc_of_the_seeds(results, finished):
    document = task_result(results, "vit-b", "tiny-chest")
    (scores,) = document["scores"]["test"]
    clean = (pl.col("condition") == "clean") & (pl.col("fraction") == 1.0)
    seeds = [read_runs(finished, "vit-b", f"tiny-chest.s{seed}").filter(clean)["auroc"].item() for seed in (0, 1)]
    assert scores["main_score"] == pytest.approx(sum(seeds) / 2, abs=1e-15)
    assert [item["auroc"] for item in scores["scores_per_experiment"]] == seeds
    assert scores["axis_discrimination"] == pytest.approx(scores["main_score"], abs=1e-15)
    assert scores["accuracy"] is None


def test_without_an_auroc_there_is_no_task_result(results):
    unknown = results.runs.with_columns(auroc=pl.lit(float("nan")))
    assert task_result(replace(results, runs=unknown), "vit-b", "tiny-chest") is None


# Croissant


def check_croissant(document, *, absent=()):
    """Croissant 1.1: required properties, distinct ids, references that lead somewhere, records of known fields."""
    required = {"@context", "@type", "conformsTo", "name", "description", "license", "url", "creator", "datePublished"}
    assert (required | {"distribution"}) - set(document) == set(absent)
    assert document["@type"] == "sc:Dataset"
    assert document["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    nodes = [*document["distribution"], *document["recordSet"]]
    nodes += [field for record_set in document["recordSet"] for field in record_set["field"]]
    ids = [node["@id"] for node in nodes]
    assert len(set(ids)) == len(ids)
    assert {node["@type"] for node in document["distribution"]} <= {"cr:FileObject", "cr:FileSet"}
    assert all(node["@type"] in ("cr:RecordSet", "cr:Field", "cr:FileSet", "cr:FileObject") for node in nodes)
    assert references(document["recordSet"]) | references(document["distribution"]) <= set(ids)
    prefixes = {key for key in document["@context"] if not key.startswith("@")}
    for record_set in document["recordSet"]:
        fields = {field["@id"] for field in record_set["field"]}
        assert all(name.startswith(f"{record_set['@id']}/") for name in fields)
        assert all(set(row) <= fields for row in record_set.get("data", []))
        for field in record_set["field"]:
            kinds = [field["dataType"]] if isinstance(field["dataType"], str) else field["dataType"]
            assert {kind.split(":")[0] for kind in kinds} <= prefixes


def references(node):
    """Ids that are pointed at: an object with nothing but ``@id``."""
    if isinstance(node, list):
        return {name for item in node for name in references(item)}
    if not isinstance(node, dict):
        return set()
    if set(node) == {"@id"}:
        return {node["@id"]}
    return {name for value in node.values() for name in references(value)}


def described(spec, results):
    facts = ImageSetFacts("0" * 64, results.image_sets["tiny-skin"].counts, empty_classes(), {})
    return croissant(spec, facts, results.suite.protocol, "0.1.0")


def empty_classes():
    counts = dict.fromkeys(("positives", "negatives", "positive_groups", "negative_groups"), pl.Int64)
    return pl.DataFrame(schema={"class": pl.String, **counts, "adds_up": pl.Boolean})


@pytest.mark.parametrize("path", ENTRIES, ids=lambda path: path.stem)
def test_every_shipped_data_set_is_described_as_far_as_its_entry_goes(path, results):
    spec = load_dataset_spec(path)
    document = described(spec, results)
    # Phantoms are drawn where they are needed, and published nowhere: nobody could say an address or a date.
    expected = ["url", "datePublished"] if spec.phantom else []
    check_croissant(document, absent=expected)
    assert lacking(document) == expected
    assert document["citeAs"] == spec.citation


def told(results, counts, roles):
    """Counts and splits that the description of a data set of these shows."""
    rows = [(*what, str(count)) for what, count in counts.items()]
    table = pl.DataFrame(rows, ["kind", "name", "count"], orient="row")
    facts = ImageSetFacts("0" * 64, table, empty_classes(), roles)
    document = croissant(entry("aptos2019"), facts, results.suite.protocol, "0.1.0")
    sets = {item["@id"]: item["data"] for item in document["recordSet"] if "data" in item}
    counted = {row["counts/what"]: row["counts/count"] for row in sets["counts"]}
    return counted, [row["splits/images"] for row in sets["splits"]]


def test_no_small_count_follows_from_what_was_read_and_is_used(results):
    counts = {("read", "images"): 200, ("read", "groups"): 120, ("quarantined", "truncated"): 4}
    counts |= {("used", "images"): 196, ("used", "groups"): 100}
    counted, _ = told(results, counts, {})
    # 200 - 196 would be the 4; of groups 20 are left out, which is no small number.
    assert counted == {
        "read: images": "suppressed",
        "read: groups": "120",
        "quarantined: truncated": "<10",
        "used: images": "196",
        "used: groups": "100",
    }
    counts |= {("quarantined", "duplicate"): 30, ("used", "images"): 166}
    counted, _ = told(results, counts, {})
    # 200 - 166 - 30 would be the 4, so neither reason is told.
    assert counted["read: images"] == "200"
    assert {counted["quarantined: truncated"], counted["quarantined: duplicate"]} == {"suppressed"}


def test_no_small_split_follows_from_the_others(results):
    counts = {(kind, unit): 100 for kind in ("read", "used") for unit in ("images", "groups")}
    roles = {"train": (60, 60), "validation": (15, 15), "calibration": (5, 5), "test": (20, 20)}
    _, splits = told(results, counts, roles)
    assert splits == ["60", "suppressed", "suppressed", "20"]


def test_the_required_properties_are_the_specifications():
    # Section "Dataset-level information" of Croissant 1.1: nine required, and distribution made required.
    assert len(REQUIRED) == 10


def test_descriptions_of_an_export_hold_counts_splits_and_no_image(exported, finished):
    document = json.loads((exported / "croissant" / "tiny-chest.json").read_text())
    check_croissant(document, absent=("url", "creator", "datePublished"))
    sets = {item["@id"]: item for item in document["recordSet"]}
    assert "data" not in sets["images"]
    counts = {row["counts/what"]: row["counts/count"] for row in sets["counts"]["data"]}
    assert counts["used: images"] == "150"
    classes = {row["classes/name"]: row["classes/images"] for row in sets["classes"]["data"]}
    # 150 images, a prevalence of 2 %.
    assert classes["rare"] == "suppressed"
    assert int(classes["effusion"]) >= 10
    splits = {row["splits/name"]: row for row in sets["splits"]["data"]}
    assert splits["train"]["splits/url"] == "cr:TrainingSplit"
    assert "splits/url" not in splits["calibration"]
    test = [read_runs(finished, "vit-a", f"tiny-chest.s{seed}")["n_eval"][0] for seed in (0, 1)]
    assert splits["test"]["splits/images"] == str(test[0]) == str(test[1])
    target = json.loads((exported / "croissant" / "tiny-chest-b.json").read_text())
    assert [row["splits/images"] for row in target["recordSet"][2]["data"]] == ["70"]


def test_the_manifest_says_what_a_description_lacks(exported):
    manifest = json.loads((exported / "manifest.json").read_text())
    (about,) = [item["about"] for item in manifest["files"] if item["path"] == "croissant/tiny-skin.json"]
    assert "names no url, creator, datePublished" in about


def test_an_archive_that_a_program_fetches_is_in_the_distribution(results):
    archive, images = described(entry("chestmnist"), results)["distribution"]
    assert archive["contentUrl"] == "https://zenodo.org/records/10519652/files/chestmnist_224.npz"
    assert archive["md5"] == "45bd33e6f06c3e8cdb481c74a89152aa"
    assert images["containedIn"] == {"@id": "archive"}


@pytest.mark.parametrize(
    ("name", "where", "when", "who"),
    [
        ("chexpert", "https://arxiv.org/abs/1901.07031", "2019", ["Irvin et al."]),
        ("ham10000", "https://doi.org/10.7910/DVN/DBW86T", "2018", ["Tschandl", "Rosendahl", "Kittler"]),
        ("isic2020", "https://doi.org/10.34970/2020-ds01", "2021", ["Rotemberg et al."]),
        ("aptos2019", KAGGLE, "2019", ["Asia Pacific Tele-Ophthalmology Society"]),
        ("retinamnist", "https://zenodo.org/records/10519652", "2023", ["Yang et al."]),
        ("demo-skin", None, None, ["crs_assets"]),
    ],
)
def test_publications_are_read_from_the_catalogues_words(name, where, when, who):
    spec = entry(name)
    assert address(spec) == where
    assert year(spec) == when
    assert [creator["name"] for creator in creators(spec)] == who


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("CC BY 4.0", "https://spdx.org/licenses/CC-BY-4.0.html"),
        ("CC BY-NC 4.0", "https://spdx.org/licenses/CC-BY-NC-4.0.html"),
        ("Apache-2.0", "https://spdx.org/licenses/Apache-2.0.html"),
        ("ask the ward", {"@type": "sc:CreativeWork", "name": "ask the ward"}),
    ],
)
def test_known_licences_have_their_page(text, found):
    assert licence(text) == found


# All of them


def test_two_exports_have_the_same_bytes(results):
    first, second = ({file.path: file.content() for file in export_files(results, FORMATS, "a/b")} for _ in range(2))
    assert first == second


def test_a_format_alone_makes_its_files_alone(results):
    paths = [file.path for file in export_files(results, ["croissant"], "a/b")]
    assert paths == [f"croissant/{name}.json" for name in ("tiny-skin", "tiny-chest", "tiny-chest-b")]
