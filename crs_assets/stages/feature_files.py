"""Features on disk: resumable chunks while they are made, one memory-mapped Arrow file when they are done.

The finished file is an Arrow IPC file of a single record batch (``image_id``: string, ``features``: fixed-size list of
float32), so that a reader gets an (n, d) view of the file without a copy, and any Arrow tool can read it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


def finished_chunks(folder: Path) -> int:
    """How many chunks of an unfinished partition are already written, counted from the first without a gap."""
    count = 0
    while _chunk(folder, count).exists():
        count += 1
    return count


def write_chunk(folder: Path, index: int, features: Float32) -> None:
    """Write one chunk so that it exists whole or not at all."""
    temporary = folder / f".chunk-{index:06d}.partial"
    with temporary.open("wb") as file:
        np.save(file, features)
    temporary.replace(_chunk(folder, index))


def read_chunks(folder: Path) -> Float32:
    """All chunks of a partition, stacked in order; float32, shape (rows, ...)."""
    return np.concatenate([np.load(_chunk(folder, index)) for index in range(finished_chunks(folder))])


def write_features(path: Path, image_ids: Sequence[str], features: Float32) -> None:
    """Write an (n, d) matrix with its image ids.

    Raises:
        ValueError: If the number of ids and rows differ.
    """
    if len(image_ids) != len(features):
        raise ValueError(f"{len(image_ids)} image ids for {len(features)} feature rows; they must be equal.")
    values = pa.array(np.ascontiguousarray(features, dtype=np.float32).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(values, features.shape[1])
    batch = pa.record_batch([pa.array(image_ids, pa.string()), column], names=["image_id", "features"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def open_features(path: Path) -> tuple[list[str], Float32]:
    """The image ids and a memory-mapped (n, d) float32 view of the features."""
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
        column = batch.column("features")
        matrix = column.flatten().to_numpy(zero_copy_only=True).reshape(len(batch), column.type.list_size)
        return batch.column("image_id").to_pylist(), matrix


def _chunk(folder: Path, index: int) -> Path:
    # A leading dot marks scratch: the store drops it when the partition is committed.
    return folder / f".chunk-{index:06d}.npy"
