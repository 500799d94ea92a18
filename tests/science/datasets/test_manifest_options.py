"""Tables of one's own that call things otherwise, and what is derived from labels."""

import pytest

from crs_assets.science.datasets import DatasetError, build_index, index_digest, read_table


@pytest.fixture
def spec(catalogue):
    def load(options=None, **changes):
        facts = {"id": "mine", "task": "ordinal", "classes": ["none", "mild", "severe"], "reader": "manifest"}
        return catalogue("aptos2019", group="patient", reader_options=options or {}, **(facts | changes))

    return load


@pytest.fixture
def write(tmp_path, write_table):
    def table(rows):
        write_table(tmp_path / "manifest.csv", rows)
        return tmp_path

    return table


OTHERWISE = [
    {"image": "img/a.png", "name": "a", "grade": "0", "label": "x", "who": "p1", "Edema": "1", "Mass": "", "H": "0"},
    {"image": "img/b.png", "name": "b", "grade": "2", "label": "x", "who": "p2", "Edema": "0", "Mass": "-1", "H": "0"},
    {"image": "img/c.png", "name": "c", "grade": "", "label": "x", "who": "p2", "Edema": "", "Mass": "", "H": ""},
]
COLUMNS = {"path": "image", "image_id": "name", "label": "grade", "patient_id": "who"}
GRADES = {"0": "none", "1": "mild", "2": "severe"}


def test_columns_and_values_called_otherwise(write, spec):
    options = {"columns": COLUMNS, "names": GRADES, "blank_label": "exclude"}
    raw = read_table(write(OTHERWISE), spec(options))
    assert raw.frame.select("image_id", "group_id", "path", "label").rows() == [
        ("mine/a", "mine::p1", "img/a.png", 0),
        ("mine/b", "mine::p2", "img/b.png", 2),
    ]
    assert [(item.reason, item.rows) for item in raw.exclusions] == [("without_label", 1)]
    assert raw.origin.rows() == [("manifest.csv", 2), ("manifest.csv", 3)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": COLUMNS, "names": GRADES}, r"'label': expected one of .*\(row 4\)"),
        ({"columns": COLUMNS | {"path": "file"}}, r"columns missing: \['file'\]"),
        ({"columns": COLUMNS, "names": {"0": "healthy"}, "blank_label": "exclude"}, "leads to .'healthy'"),
    ],
)
def test_what_the_table_does_not_say_is_told(write, spec, options, message):
    with pytest.raises(DatasetError, match=message):
        read_table(write(OTHERWISE), spec(options))


def test_one_file_under_two_patients(write, spec, write_image, tmp_path):
    rows = [row | {"sha256": "ab"} for row in OTHERWISE[:2]]
    options = {"columns": COLUMNS, "names": GRADES}
    with pytest.raises(DatasetError, match=r"one file under different groups \(rows 2, 3\)"):
        read_table(write(rows), spec(options))
    settled = spec(options | {"shared_file": "settle"})
    for name in ("a", "b"):
        write_image(tmp_path / "img" / f"{name}.png", seed=0)
    # The same picture as none and as severe: the groups are joined, and both copies are out.
    frame = build_index(read_table(write(rows), settled), tmp_path, settled, workers=1).frame
    assert frame["quarantine"].to_list() == ["conflicting_duplicate"] * 2
    assert frame["group_id"].to_list() == ["mine::p1"] * 2


@pytest.fixture
def multilabel(spec):
    options = {"columns": COLUMNS, "label_prefix": ""}
    return spec(options, task="multilabel", classes=["Edema", "Mass", "H"], derived={"finding": ["Edema", "Mass"]})


def test_a_derived_label_is_any_of_its_classes(write, multilabel):
    cells = ["1,-1,0", "0,-1,0", "0,,1", ",,1", ",,", "0,0,-1", "1,,"]
    rows = [
        {"image": f"{n}.png", "name": str(n), "grade": "0", "who": "p"}
        | dict(zip(("Edema", "Mass", "H"), text.split(","), strict=True))
        for n, text in enumerate(cells)
    ]
    # One positive decides; without one, an uncertain member leaves it uncertain; a row that says nothing says nothing.
    expected = [1, -1, 0, 0, None, 0, 1]
    assert read_table(write(rows), multilabel).frame["label:finding"].to_list() == expected


def test_a_derived_label_of_a_softmax_source(write, spec):
    options = {"columns": COLUMNS, "names": GRADES, "blank_label": "exclude"}
    frame = read_table(write(OTHERWISE), spec(options, derived={"any DR": ["mild", "severe"]})).frame
    assert frame["label:any DR"].to_list() == [0, 1]


def test_derived_labels_are_content(write, write_image, spec, tmp_path):
    options = {"columns": COLUMNS, "names": GRADES, "blank_label": "exclude"}
    for n, name in enumerate("ab"):
        write_image(tmp_path / "img" / f"{name}.png", seed=n)
    root = write(OTHERWISE)
    digests = set()
    for derived in ({}, {"any DR": ["mild", "severe"]}, {"any DR": ["mild"]}):
        one = spec(options, derived=derived)
        digests.add(index_digest(build_index(read_table(root, one), root, one, workers=1).frame))
    assert len(digests) == 3


SITES = [
    {"image_id": "a", "path": "a.png", "patient_id": "p1", "label": "none", "site": "north"},
    {"image_id": "b", "path": "b.png", "patient_id": "p1", "label": "none", "site": "south"},
    {"image_id": "c", "path": "c.png", "patient_id": "p2", "label": "mild", "site": "south"},
    {"image_id": "d", "path": "d.png", "patient_id": "", "label": "mild", "site": "south"},
    {"image_id": "e", "path": "e.png", "patient_id": "", "label": "severe", "site": ""},
]


def kept(raw):
    return [name.partition("/")[2] for name in raw.frame["image_id"]], {i.reason: i.rows for i in raw.exclusions}


def test_one_table_is_source_and_target_by_site(write, spec):
    """Patient p1 was seen at both sites: the source keeps her, and the target must not be scored on her."""
    root = write(SITES)
    source = read_table(root, spec({"sites": ["north"]}))
    target = read_table(root, spec({"sites": ["south"]}, role="target"))
    assert kept(source) == (["a"], {"site_not_selected": 4})
    assert kept(target) == (["c", "d"], {"group_at_another_site": 1, "site_not_selected": 2})
    assert kept(read_table(root, spec({"sites": ["south", "north"]}))) == (list("abcd"), {"site_not_selected": 1})


def test_a_site_may_be_a_subgroup_too(write, spec):
    rows = [{("sub:site" if key == "site" else key): cell for key, cell in row.items()} for row in SITES]
    raw = read_table(write(rows), spec({"sites": ["south"]}, subgroups=["site"]))
    assert kept(raw)[0] == ["b", "c", "d"]
    assert raw.frame["sub:site"].to_list() == ["south"] * 3


@pytest.mark.parametrize("option", ["sites", "views"])
def test_a_selection_needs_its_column(write, spec, option):
    rows = [{key: cell for key, cell in row.items() if key != "site"} for row in SITES]
    with pytest.raises(DatasetError, match=rf"reader_options.{option} is set and there is no column '{option[:-1]}'"):
        read_table(write(rows), spec({option: ["south"]}))
