"""The store: whole or absent, verified, one writer at a time, mirrored."""

import json
import multiprocessing
import os
import shutil
import uuid

import fsspec
import pytest

from crs_assets.resources import artifact_store
from crs_assets.resources.artifact_store import CURRENT, MANIFEST, ArtifactKey, ArtifactStore, StoreError, file_sha256

KEY = ArtifactKey("suite", "features", ("encoder", "dataset"))
ONE, TWO = "1" * 64, "2" * 64


def put(store, fingerprint=ONE, text="content", key=KEY, **files):
    with store.write(key, fingerprint) as staging:
        for name, value in {"table.txt": text, **files}.items():
            staging.path(name).write_text(value)
        return staging.commit(recipe={"of": fingerprint}, provenance={}, summary={"rows": 1})


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path / "artifacts")


def test_what_was_put_is_what_is_read_and_the_manifest_says_what_it_is(store):
    manifest = put(store)
    artifact = store.open(KEY)
    assert artifact.file("table.txt").read_text() == "content"
    assert artifact.manifest == manifest
    # printf content | sha256sum
    expected = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    assert manifest.files == {"table.txt": {"sha256": expected, "bytes": 7}}
    assert manifest.data_version == ONE
    assert store.is_current(KEY, ONE)
    assert not store.is_current(KEY, TWO)
    assert store.keys("suite", "features") == [KEY]
    with pytest.raises(StoreError, match=r"no file 'other'.*table\.txt"):
        artifact.file("other")


def test_a_partition_that_was_never_finished_is_absent_and_its_work_survives(store):
    def crash():
        with store.write(KEY, ONE) as staging:
            staging.path("table.txt").write_text("half")
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        crash()
    assert store.peek(KEY) is None
    assert store.keys("suite", "features") == []
    with pytest.raises(StoreError, match="make it first: crs run --suite suite"):
        store.open(KEY)
    with store.write(KEY, ONE) as staging:
        assert staging.path("table.txt").read_text() == "half"


def test_unfinished_work_of_another_recipe_is_thrown_away(store):
    for fingerprint in (ONE, TWO):
        with store.write(KEY, fingerprint) as staging:
            assert list(staging.folder.iterdir()) == []
            staging.path("table.txt").write_text("half")
    assert [path.name for path in (store.root / KEY.path).glob(".staging-*")] == [f".staging-{TWO[:16]}"]


def test_a_version_without_its_manifest_does_not_exist(store):
    put(store)
    (store.root / KEY.path / ONE[:16] / MANIFEST).unlink()
    assert store.peek(KEY) is None
    with pytest.raises(StoreError, match="not in the store"):
        store.open(KEY)


def test_the_manifest_is_written_after_every_file_and_the_pointer_after_the_manifest(store, monkeypatch):
    seen, write = [], artifact_store.write_atomic

    def watched(path, text):
        folder = path.parent
        seen.append(
            (path.name, sorted(p.name for p in folder.iterdir() if p.suffix == ".txt"), store.peek(KEY) is not None)
        )
        write(path, text)

    monkeypatch.setattr(artifact_store, "write_atomic", watched)
    put(store, **{"other.txt": "more"})
    assert [name for name, _, _ in seen] == [MANIFEST, CURRENT]
    assert seen[0] == (MANIFEST, ["other.txt", "table.txt"], False)
    assert seen[1][2] is False


@pytest.mark.parametrize("alter", ["content", "size", "missing"])
def test_a_file_that_is_not_what_was_written_is_refused_with_the_cure(tmp_path, alter):
    put(ArtifactStore(tmp_path))
    path = tmp_path / KEY.path / ONE[:16] / "table.txt"
    if alter == "missing":
        path.unlink()
    else:
        path.write_text("CONTENT" if alter == "content" else "content, longer")
    with pytest.raises(StoreError, match=r"features/encoder/dataset: table\.txt (differs|is missing).*[Dd]elete"):
        ArtifactStore(tmp_path).open(KEY)


def test_a_file_altered_after_it_was_verified_is_refused_too(store):
    put(store)
    path = store.open(KEY).file("table.txt")
    path.write_text("altered")
    os.utime(path, ns=(1, 1))
    with pytest.raises(StoreError, match="altered"):
        store.open(KEY)


def test_a_manifest_of_another_form_is_named(store):
    put(store)
    path = store.root / KEY.path / ONE[:16] / MANIFEST
    for text in ("{", json.dumps({"unknown": 1})):
        path.write_text(text)
        with pytest.raises(StoreError, match=r"not a manifest.*delete the folder"):
            store.open(KEY)


def test_old_versions_stay_readable_until_they_are_pruned(store):
    put(store, ONE, "old")
    put(store, TWO, "new")
    assert store.open(KEY).file("table.txt").read_text() == "new"
    assert store.open(KEY, ONE).file("table.txt").read_text() == "old"
    store.prune(KEY)
    assert store.open(KEY).file("table.txt").read_text() == "new"
    with pytest.raises(StoreError, match="not in the store"):
        store.open(KEY, ONE)


def test_an_old_version_is_put_in_force_again_without_being_made(store):
    put(store, ONE, "old")
    put(store, TWO, "new")
    with store.write(KEY, ONE):
        assert store.adopt(KEY, ONE)
        assert not store.adopt(KEY, "3" * 64)
    assert store.open(KEY).file("table.txt").read_text() == "old"
    (store.root / KEY.path / TWO[:16] / "table.txt").write_text("NEW")
    with pytest.raises(StoreError, match="altered"):
        store.adopt(KEY, TWO)


def test_the_same_version_made_twice_replaces_itself(store):
    put(store, ONE, "first")
    put(store, ONE, "second")
    assert store.open(KEY).file("table.txt").read_text() == "second"


def test_scratch_is_dropped_at_commit(store):
    manifest = put(store, **{".chunk-0": "scratch"})
    assert set(manifest.files) == {"table.txt"}
    assert not (store.root / KEY.path / ONE[:16] / ".chunk-0").exists()


def write_slowly(root, fingerprint, text, started, ready):
    store = ArtifactStore(root)
    started.set()
    with store.write(KEY, fingerprint) as staging:
        mine = staging.path("table.txt")
        # Interleaved writers would see each other's file here.
        assert not mine.exists()
        for part in text:
            with mine.open("a") as file:
                file.write(part)
            ready.wait(0.02)
        staging.commit(recipe={}, provenance={}, summary={})


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("fingerprints", [(ONE, ONE), (ONE, TWO)])
def test_two_processes_that_write_one_partition_take_turns(tmp_path, fingerprints):
    fork = multiprocessing.get_context("fork")
    never, events = fork.Event(), [fork.Event(), fork.Event()]
    texts = ("aaaaaaaa", "bbbbbbbb")
    writers = [
        fork.Process(target=write_slowly, args=(tmp_path, fingerprint, text, event, never))
        for fingerprint, text, event in zip(fingerprints, texts, events, strict=True)
    ]
    for writer in writers:
        writer.start()
    assert all(event.wait(20) for event in events)
    for writer in writers:
        writer.join(20)
    assert [writer.exitcode for writer in writers] == [0, 0]
    store = ArtifactStore(tmp_path)
    assert store.open(KEY).file("table.txt").read_text() in texts
    for fingerprint in set(fingerprints):
        assert store.open(KEY, fingerprint).file("table.txt").read_text() in texts


def test_a_folder_that_cannot_be_written_is_reported_before_any_work(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        StoreError, match=r"cannot write to .*file/artifacts \(Not a directory\); choose another CRS_HOME"
    ):
        ArtifactStore(tmp_path / "file" / "artifacts").check_writable()


def test_a_disk_that_is_too_small_is_reported_with_both_figures(store, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9e9, 8e9, 1.5e9))
    store.check_writable(1_500_000_000)
    with pytest.raises(StoreError, match=r"1\.5 GB free, 2\.5 GB needed; free space or move CRS_HOME"):
        store.check_writable(2_500_000_000)
    assert list(store.root.iterdir()) == []


@pytest.fixture(params=["memory", "file"])
def remote(request, tmp_path):
    return f"memory://{uuid.uuid4().hex}" if request.param == "memory" else f"file://{tmp_path}/mirror"


def test_a_mirror_gives_an_empty_folder_the_same_bytes(tmp_path, remote):
    first = ArtifactStore(tmp_path / "a", remote)
    manifest = put(first, **{"more.bin": "x" * 1000})
    second = ArtifactStore(tmp_path / "b", remote)
    assert second.is_current(KEY, ONE)
    artifact = second.open(KEY)
    assert artifact.manifest == manifest
    for name in manifest.files:
        assert file_sha256(artifact.file(name)) == file_sha256(first.open(KEY).file(name))
    assert ArtifactStore(tmp_path / "c", remote).peek(ArtifactKey("suite", "features", ("other",))) is None


def test_the_mirrors_pointer_is_written_last(tmp_path, monkeypatch):
    remote, order = f"memory://{uuid.uuid4().hex}", []
    filesystem = fsspec.filesystem("memory")
    for method, position in (("put_file", 1), ("pipe_file", 0)):
        original = getattr(type(filesystem), method)

        def watched(self, *arguments, original=original, position=position, **options):
            order.append(arguments[position].rsplit("/", 1)[-1])
            return original(self, *arguments, **options)

        monkeypatch.setattr(type(filesystem), method, watched)
    put(ArtifactStore(tmp_path, remote))
    assert [name for name in order if name in ("table.txt", MANIFEST, CURRENT)][-3:] == ["table.txt", MANIFEST, CURRENT]


def test_a_failed_push_leaves_nothing_in_force_and_is_made_good_without_making_anew(tmp_path, monkeypatch):
    remote = f"memory://{uuid.uuid4().hex}"
    store = ArtifactStore(tmp_path / "a", remote)

    def unreachable(*_, **__):
        raise OSError("no route to host")

    with monkeypatch.context() as patch:
        patch.setattr(type(fsspec.filesystem("memory")), "put_file", unreachable)
        with pytest.raises(OSError, match="no route"):
            put(store)
    assert store.peek(KEY) is None
    with store.write(KEY, ONE):
        assert store.adopt(KEY, ONE)
    assert ArtifactStore(tmp_path / "b", remote).open(KEY).file("table.txt").read_text() == "content"
