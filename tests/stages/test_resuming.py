"""A process that is killed in the middle of encoding: what it had written is used, and no bit tells."""

import os
import signal
import subprocess
import sys
import time

import pytest

from crs_assets.resources import bench as bench_module
from crs_assets.stages.data import DatasetIndex
from crs_assets.stages.encoders import DegradedFeatures, EncoderWeights, Features
from crs_assets.stages.feature_files import finished_chunks, read_chunks, write_chunk
from crs_assets.stages.progress import listening

# Encodes as any process would, only slowly: each batch waits, so that the parent can kill it between chunks.
ENCODE = """
import sys, time
from pathlib import Path
from crs_assets.resources.artifact_store import ArtifactStore
from crs_assets.resources.bench import Bench
from crs_assets.resources.compute import Compute
from crs_assets.resources.data_roots import Roots
from crs_assets.resources.home import Home
from crs_assets.resources.weights import Weights
from crs_assets.stages.encoders import DegradedFeatures, Features
from crs_assets.stages.progress import listening

home = Home(Path(sys.argv[1]))
compute = Compute(device="cpu", batch_size=8, chunk_batches=2, workers=1, threads=1)
weights = Weights(home.mirror, home.path / "cache" / "hashes.json")
bench = Bench(home.load_suite("tiny"), home, ArtifactStore(home.artifacts), compute, Roots(home.data, {}), weights)
stage = {stage.name: stage for stage in (Features(), DegradedFeatures())}[sys.argv[2]]
with listening(lambda progress: time.sleep(0.2)):
    stage.ensure(bench, "pixels-1", "tiny-skin")
"""


def prepared(tiny, home):
    bench = tiny.open_bench(home)
    DatasetIndex().ensure(bench, "tiny-skin")
    EncoderWeights().ensure(bench, "pixels-1")
    return bench


def staged_chunks(bench, stage):
    folders = list((bench.store.root / bench.key(stage.name, "pixels-1", "tiny-skin").path).glob(".staging-*"))
    return finished_chunks(folders[0]) if folders else 0


@pytest.mark.slow
@pytest.mark.parametrize("stage", [Features(), DegradedFeatures()], ids=lambda stage: stage.name)
def test_a_killed_process_costs_at_most_one_chunk_and_no_bit(tiny, make_home, monkeypatch, stage):
    whole, killed = (prepared(tiny, make_home(bare=True)) for _ in range(2))
    command = [sys.executable, "-c", ENCODE, str(killed.home.path), stage.name]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 120
    while staged_chunks(killed, stage) < 2:
        assert process.poll() is None, "the process ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    saved = staged_chunks(killed, stage)
    assert saved >= 2
    assert killed.store.peek(killed.key(stage.name, "pixels-1", "tiny-skin")) is None

    encoded = []
    load = bench_module.load_encoder

    def counting(*arguments, **options):
        encoder = load(*arguments, **options)
        encode = encoder.encode
        encoder.encode = lambda batch: encoded.append(len(batch)) or encode(batch)
        return encoder

    expected = stage.ensure(whole, "pixels-1", "tiny-skin")
    monkeypatch.setattr(bench_module, "load_encoder", counting)
    resumed = stage.ensure(killed, "pixels-1", "tiny-skin")
    assert resumed.timing["resumed_chunks"] == saved
    total = resumed.manifest.summary["images"] * resumed.manifest.summary["conditions"]
    assert sum(encoded) == total - saved * 16
    assert resumed.manifest.fingerprint == expected.manifest.fingerprint
    assert resumed.manifest.files == expected.manifest.files
    for name in expected.manifest.files:
        paths = [b.store.open(b.key(stage.name, "pixels-1", "tiny-skin")).file(name) for b in (whole, killed)]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_number_of_workers_changes_no_byte(tiny, make_home):
    files = []
    for workers in (1, 3):
        home = make_home(bare=True)
        prepared(tiny, home)
        files.append(Features().ensure(tiny.open_bench(home, workers=workers), "pixels-1", "tiny-skin").manifest.files)
    assert files[0] == files[1]


def test_chunks_count_from_the_first_without_a_gap(tmp_path):
    import numpy as np

    for index in (0, 1, 3):
        write_chunk(tmp_path, index, np.full((2, 3), index, np.float32))
    (tmp_path / ".chunk-000002.partial").write_bytes(b"half")
    assert finished_chunks(tmp_path) == 2
    np.testing.assert_array_equal(read_chunks(tmp_path)[:, 0], [0, 0, 1, 1])


def test_progress_reaches_whoever_listens_and_nobody_else(tiny, make_home):
    bench, seen = prepared(tiny, make_home(bare=True)), []
    with listening(seen.append):
        Features().ensure(bench, "pixels-1", "tiny-skin")
    assert [item.done for item in seen] == [*range(8, 150, 8), 150]
    assert {(item.stage, item.parts, item.total) for item in seen} == {("features", ("pixels-1", "tiny-skin"), 150)}
    assert seen[-1].line().startswith("features pixels-1|tiny-skin: 150 of 150 images")
