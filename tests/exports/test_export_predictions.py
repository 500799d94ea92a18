"""Predictions of single images: hashed ids, no order, no labels; and no id in any file of an export."""

import hashlib
import hmac
import re
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

from crs_assets.exports.predictions import hash_ids, new_key, prediction_table
from crs_assets.stages.data import read_index
from crs_assets.stages.probes import read_clean_predictions

SPACE = SimpleNamespace(id="d", task="multiclass", classes=("x", "y"))


def stored(ids, *, role="test", fraction=1.0, condition="clean", seed=0):
    logits = np.arange(2 * len(ids), dtype=np.float32).reshape(-1, 2) / 7
    return pl.DataFrame(
        {
            "fraction": [fraction] * len(ids),
            "role": [role] * len(ids),
            "condition": [condition] * len(ids),
            "image_id": ids,
            "logits": pl.Series(logits, dtype=pl.Array(pl.Float32, 2)),
            "seed": [seed] * len(ids),
        }
    )


def test_hash_is_the_published_one():
    # RFC 4231, test case 2.
    (found,) = hash_ids(pl.Series(["what do ya want for nothing?"]), b"Jefe")
    assert found == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"


def test_keys_are_new_and_long():
    assert len({new_key() for _ in range(20)}) == 20
    assert len(new_key()) == 32


def test_probabilities_are_those_of_the_logits_in_an_order_that_says_nothing():
    rows = stored([f"d/{name}" for name in "abcdefgh"])
    table = prediction_table(rows, SPACE, b"k")
    assert table.columns == ["image", "seed", "condition", "p:x", "p:y"]
    assert table["image"].is_sorted()
    for image_id, logits in rows.select("image_id", "logits").iter_rows():
        name = hmac.new(b"k", image_id.encode(), hashlib.sha256).hexdigest()
        row = table.filter(pl.col("image") == name).row(0)
        np.testing.assert_allclose(row[3:], softmax(np.array(logits, dtype=np.float64)), rtol=1e-12)


def test_only_what_is_evaluated_at_all_labels_is_taken():
    rows = pl.concat(
        [
            stored(["d/a"]),
            stored(["d/b"], role="validation"),
            stored(["d/c"], fraction=0.2),
            stored(["e/d"], role="target", condition="transfer"),
        ]
    )
    found = prediction_table(rows, SPACE, b"k")
    assert sorted(found["condition"]) == ["clean", "transfer"]
    assert prediction_table(stored(["d/b"], role="validation"), SPACE, b"k").schema == found.schema


def test_unfitted_labels_are_null():
    rows = stored(["d/a"]).with_columns(
        logits=pl.Series(np.array([[0.0, np.nan]], dtype=np.float32), dtype=pl.Array(pl.Float32, 2))
    )
    labels = SimpleNamespace(id="d", task="multilabel", classes=("x", "y"))
    assert prediction_table(rows, labels, b"k").row(0)[3:] == (0.5, None)


def test_the_same_image_has_the_same_name_for_every_encoder(exported, finished):
    names = {
        encoder: set(pl.read_parquet(exported / "predictions" / encoder / "tiny-skin.parquet")["image"])
        for encoder in ("vit-a", "vit-b", "pixels-1")
    }
    assert names["vit-a"] == names["vit-b"] == names["pixels-1"]
    test = read_clean_predictions(finished, "vit-a", "tiny-skin.s0")
    assert names["vit-a"] == set(hash_ids(test["image_id"], b"k" * 32))


def ids_of(bench):
    """Everything that stands for one image or patient: ids with and without data set, paths, file names."""
    found = set()
    for image_set in bench.suite.image_sets:
        index = read_index(bench, image_set)
        for image, group, path in index.select("image_id", "group_id", "path").iter_rows():
            found |= {image, group, path, path.rsplit("/")[-1]}
            found |= {image.removeprefix(f"{image_set}/"), group.removeprefix(f"{image_set}::")}
    assert {"tiny-skin/s001", "s001", "s001.png", "tiny-chest::q150", "q150"} <= found
    return {name.encode() for name in found}


def words(content):
    return set(re.findall(rb"[A-Za-z0-9_.:/-]+", content))


def texts(path):
    """Every word of a file; a table's columns are read, because its bytes are compressed."""
    content = path.read_bytes()
    if path.suffix == ".parquet":
        table = pl.read_parquet(path)
        content += "\n".join(table.columns).encode()
        for column in table.select(pl.col(pl.String)):
            content += b"\n" + "\n".join(column.drop_nulls().unique()).encode()
    return words(content)


@pytest.mark.parametrize("kind", ["tables", "eval-results", "mteb", "croissant", "predictions", "."])
def test_no_id_of_an_image_or_a_group_and_no_path_leaves(kind, exported, finished):
    ids = ids_of(finished)
    files = [path for path in (exported / kind).rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert not texts(path) & ids, path.name
        assert not {str(path.relative_to(exported)).encode()} & ids
        assert str(finished.home.path).encode() not in path.read_bytes()


def test_the_scan_finds_an_id_where_there_is_one(tmp_path):
    pl.DataFrame({"x": ["tiny-skin/s001"]}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("x\ntiny-skin/s001,1\n")
    assert all(b"tiny-skin/s001" in texts(path) for path in tmp_path.iterdir())


def test_predictions_hold_no_group_and_no_label(exported):
    for path in (exported / "predictions").rglob("*.parquet"):
        columns = pl.read_parquet_schema(path)
        assert list(columns)[:3] == ["image", "seed", "condition"]
        assert all(name.startswith("p:") for name in list(columns)[3:])
