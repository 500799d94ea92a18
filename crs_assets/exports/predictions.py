"""Predictions of single images, on request: probabilities under hashed ids, without labels.

An image is named by HMAC-SHA-256 [1]_ of its id under a random key that is made for one export and kept nowhere. So the
same image has the same name throughout an export, whichever encoder predicted it; nobody can test a guess of an id
against it, and two exports cannot be joined. Rows are sorted by that name, because the order of ids would tell. Groups
and labels are left out: labels belong to the data set, and would undo the suppression of small counts.

References:
    .. [1] Krawczyk, Bellare, Canetti, RFC 2104, 1997.
"""

import hashlib
import hmac
import secrets

import polars as pl

from crs_assets.science.evaluation import probabilities
from crs_assets.science.labels import LabelSpace
from crs_assets.science.splits import TEST

TARGET = "target"
KEY_BYTES = 32
WARNING = (
    "predictions/ holds data of single images (probabilities under hashed ids, no labels, no groups). Check the terms "
    "of the data sets before it goes anywhere."
)


def new_key() -> bytes:
    """A key for one export, never to be stored."""
    return secrets.token_bytes(KEY_BYTES)


def hash_ids(image_ids: pl.Series, key: bytes) -> pl.Series:
    """``image``: HMAC-SHA-256 of each id (UTF-8) as 64 hexadecimal digits."""
    names = {name: hmac.new(key, name.encode("utf-8"), hashlib.sha256).hexdigest() for name in image_ids.unique()}
    return image_ids.replace_strict(names, return_dtype=pl.String).alias("image")


def prediction_table(predictions: pl.DataFrame, space: LabelSpace, key: bytes) -> pl.DataFrame:
    """Probabilities at all labels for every evaluated image, under every condition.

    Args:
        predictions: Rows of ``probe_predictions`` with ``seed``.
        space: What the logits are of.
        key: As ``new_key`` makes it.

    Returns:
        ``image``, ``seed``, ``condition``, then ``p:<class>`` Float64 for each class in the order of ``space``: a
        softmax, or a sigmoid per label; null where the probe was not fitted.
    """
    wanted = (pl.col("fraction") == 1.0) & pl.col("role").is_in([TEST, TARGET])
    rows = predictions.filter(wanted)
    if not rows.height:
        columns = {"image": pl.String, "seed": pl.Int64, "condition": pl.String}
        return pl.DataFrame(schema={**columns, **{f"p:{name}": pl.Float64 for name in space.classes}})
    proba = probabilities(rows["logits"].to_numpy(), space.task)
    table = rows.select(hash_ids(rows["image_id"], key), pl.col("seed").cast(pl.Int64), "condition")
    stated = [pl.Series(f"p:{name}", proba[:, at]).fill_nan(None) for at, name in enumerate(space.classes)]
    return table.with_columns(stated).sort("seed", "condition", "image")
