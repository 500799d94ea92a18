import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crs_assets.science.identifiers import (
    group_id,
    group_id_column,
    image_id,
    image_id_column,
    image_key_column,
    unusable_key_column,
)

# The ids that the layouts document; hashes of them seed splits and degradations, so they must never change.
KEYS = {
    "chexpert": ("patient00001/study1/view1_frontal", "patient00001/study1/view1_frontal.jpg"),
    "isic2019": ("ISIC_0000013_downsampled", "ISIC_0000013_downsampled.JPG"),
    "aptos2019": ("000c1434d8d7", "000c1434d8d7.png"),
    "mimic-cxr": ("02aa804e-bde0afdd-112c0b34-7bc16630-4e384014", "02aa804e-bde0afdd-112c0b34-7bc16630-4e384014.dcm"),
}


@pytest.mark.parametrize("dataset", KEYS)
def test_extension_does_not_enter_the_id(dataset):
    key, file = KEYS[dataset]
    assert image_id(dataset, key) == image_id(dataset, file) == f"{dataset}/{key}"


def test_only_image_extensions_are_dropped():
    assert image_id("d", "scan.v1.2") == "d/scan.v1.2"
    assert image_id("d", "a.png.jpg") == "d/a.png"


def test_composed_and_decomposed_names_are_one_id():
    # U+00E9 against e + U+0301.
    assert image_id("d", "caf\u00e9") == image_id("d", "cafe\u0301") == "d/caf\u00e9"
    assert group_id("d", "caf\u00e9") == group_id("d", "cafe\u0301")


def test_case_and_leading_zeros_are_kept():
    assert image_id("d", "ISIC_01") != image_id("d", "isic_01")
    assert group_id("d", "0012") == "d::0012"
    assert group_id("a", "1") != group_id("b", "1")


UNUSABLE = ["", " a", "a ", "a\tb", "a\x00", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a\\b", ".jpg", "a/.png"]


@pytest.mark.parametrize("key", UNUSABLE)
def test_unusable_keys_are_refused(key):
    with pytest.raises(ValueError, match="image key"):
        image_id("d", key)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=8))
def test_columns_agree_with_scalars(keys):
    frame = pl.DataFrame({"key": keys}).select(
        image_id_column("d", pl.col("key")).alias("image"),
        group_id_column("d", pl.col("key")).alias("group"),
        unusable_key_column(image_key_column(pl.col("key"))).alias("unusable"),
    )
    for key, image, group, unusable in zip(keys, *frame.get_columns(), strict=True):
        assert group == group_id("d", key)
        if unusable:
            with pytest.raises(ValueError, match="image key"):
                image_id("d", key)
        else:
            assert image == image_id("d", key)
