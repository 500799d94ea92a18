"""The folder of an export: whole, listed, never mixed with another."""

import hashlib
import json

import pytest

from crs_assets.exports.folder import ExportFile, write_folder
from crs_assets.exports.results import ExportError

FACTS = {"suite": "s"}


def file(path, content=b"x", about="A file."):
    return ExportFile(path, about, lambda: content)


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_manifest_lists_every_file_with_its_sha256(tmp_path):
    written = write_folder(tmp_path / "new" / "out", [file("b.txt", b"bb"), file("a/c.txt")], FACTS, force=False)
    assert (written.changed, written.files, written.size) == (True, 2, 3)
    found = tree(tmp_path / "new" / "out")
    manifest = json.loads(found.pop("manifest.json"))
    assert manifest["suite"] == "s"
    assert manifest["files"] == [
        {"path": path, "about": "A file.", "bytes": len(found[path]), "sha256": hashlib.sha256(found[path]).hexdigest()}
        for path in sorted(found)
    ]


def test_the_same_again_changes_nothing(tmp_path):
    write_folder(tmp_path, [file("a")], FACTS, force=False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert not write_folder(tmp_path, [file("a")], FACTS, force=False).changed
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("files", [[("a", b"y")], [("a", b"x"), ("b", b"x")], [("b", b"x")]])
def test_another_export_is_refused_and_replaced_on_request(tmp_path, files):
    write_folder(tmp_path, [file("a"), file("old/deep/c")], FACTS, force=False)
    before = tree(tmp_path)
    with pytest.raises(ExportError, match="another export"):
        write_folder(tmp_path, [file(*item) for item in files], FACTS, force=False)
    assert tree(tmp_path) == before
    write_folder(tmp_path, [file(*item) for item in files], FACTS, force=True)
    found = tree(tmp_path)
    assert (
        {entry["path"] for entry in json.loads(found.pop("manifest.json"))["files"]}
        == set(found)
        == {path for path, _ in files}
    )
    assert not (tmp_path / "old").exists()


def test_an_altered_file_is_not_taken_for_the_same(tmp_path):
    write_folder(tmp_path, [file("a")], FACTS, force=False)
    (tmp_path / "a").write_bytes(b"altered")
    with pytest.raises(ExportError, match="another export"):
        write_folder(tmp_path, [file("a")], FACTS, force=False)


def test_files_of_somebody_else_are_refused_and_never_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ExportError, match="no export listed"):
        write_folder(tmp_path, [file("a")], FACTS, force=False)
    assert tree(tmp_path) == {"thesis.tex": b"mine"}
    write_folder(tmp_path, [file("a")], FACTS, force=True)
    write_folder(tmp_path, [file("b")], FACTS, force=True)
    assert tree(tmp_path)["thesis.tex"] == b"mine"
    assert set(tree(tmp_path)) == {"thesis.tex", "b", "manifest.json"}


def test_a_failure_leaves_the_former_export_as_it_was(tmp_path):
    write_folder(tmp_path, [file("a")], FACTS, force=False)
    before = tree(tmp_path)

    def fail():
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_folder(tmp_path, [file("a", b"new"), ExportFile("b", "B.", fail)], FACTS, force=True)
    assert tree(tmp_path) == before


def test_what_a_killed_export_left_is_cleared_away(tmp_path):
    (tmp_path / ".partial-x").mkdir()
    (tmp_path / ".partial-x" / "secret").write_text("s")
    write_folder(tmp_path, [file("a")], FACTS, force=False)
    assert set(tree(tmp_path)) == {"a", "manifest.json"}


@pytest.mark.parametrize("path", ["../outside", "/outside"])
def test_a_manifest_that_leads_outside_is_refused(tmp_path, path):
    (tmp_path / "manifest.json").write_text(json.dumps({"files": [{"path": path}]}))
    with pytest.raises(ExportError, match="outside"):
        write_folder(tmp_path, [file("a")], FACTS, force=True)


@pytest.mark.parametrize("text", ["{", "[]", '{"files": [1]}'])
def test_a_manifest_of_something_else_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ExportError, match="not a manifest of an export"):
        write_folder(tmp_path, [file("a")], FACTS, force=True)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(ExportError, match="is a file"):
        write_folder(tmp_path / "f", [file("a")], FACTS, force=True)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(ExportError, match=r"cannot be made \(Not a directory\); name a folder"):
        write_folder(tmp_path / "taken" / "out", [file("a")], FACTS, force=False)
