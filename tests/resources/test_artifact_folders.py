"""Files in folders of a partition: kept, verified and mirrored like any other."""

import uuid

import pytest

from crs_assets.resources.artifact_store import ArtifactKey, ArtifactStore, StoreError

KEY = ArtifactKey("suite", "report")
ONE = "1" * 64


def put(store):
    with store.write(KEY, ONE) as staging:
        staging.path("page.html").write_text("page")
        staging.path("figures/a.svg").write_text("drawing")
        return staging.commit(recipe={}, provenance={}, summary={})


def test_a_file_in_a_folder_is_known_by_its_path_and_read_back(tmp_path):
    store = ArtifactStore(tmp_path)
    manifest = put(store)
    assert set(manifest.files) == {"page.html", "figures/a.svg"}
    assert manifest.files["figures/a.svg"]["bytes"] == len("drawing")
    assert store.open(KEY).file("figures/a.svg").read_text() == "drawing"


def test_an_altered_or_missing_file_in_a_folder_is_refused(tmp_path):
    put(ArtifactStore(tmp_path))
    path = ArtifactStore(tmp_path).open(KEY).file("figures/a.svg")
    path.write_text("another")
    with pytest.raises(StoreError, match=r"a\.svg differs from its manifest"):
        ArtifactStore(tmp_path).open(KEY)
    path.unlink()
    with pytest.raises(StoreError, match=r"a\.svg is missing"):
        ArtifactStore(tmp_path).open(KEY)


def test_folders_travel_through_a_mirror(tmp_path):
    remote = f"memory://mirror-{uuid.uuid4().hex}"
    put(ArtifactStore(tmp_path / "here", remote))
    elsewhere = ArtifactStore(tmp_path / "there", remote)
    assert elsewhere.open(KEY).file("figures/a.svg").read_text() == "drawing"
    assert elsewhere.open(KEY).file("page.html").read_text() == "page"
