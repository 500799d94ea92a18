"""ISIC 2019's real tables, from text to nested label subsets, on one core: seconds, and the peak of memory.

Reads both tables, joins lesions, settles groups, draws the test set, then for each of the protocol's seeds divides the
rest and nests the subsets, looks for leaks, and counts which classes can be scored. No image is opened: the pixels'
digests are made up, all distinct.
"""

import hashlib
import os
import time
from pathlib import Path

import polars as pl
from reporting import options_parser, peak_bytes, report, spread

from crs_assets.science.datasets import load_dataset_spec, read_table
from crs_assets.science.datasets.duplicates import settle_duplicates
from crs_assets.science.protocol import load_protocol
from crs_assets.science.splits import assign_test, check_no_leak, eligible_classes, split_seed
from crs_assets.science.suite import find_entry


def prepare(root: Path) -> dict[str, int]:
    """From the tables to the subsets of every seed; how much there was of each."""
    spec, protocol = load_dataset_spec(find_entry("datasets", "isic2019")), load_protocol("crs-v1")
    frame = read_table(root, spec).frame
    digests = [hashlib.sha256(name.encode()).hexdigest() for name in frame["image_id"]]
    frame = frame.with_columns(pl.Series("pixel_digest", digests), pl.lit(None, dtype=pl.String).alias("quarantine"))
    frame = settle_duplicates(frame.sort("image_id"), spec)
    index = frame.with_columns(assign_test(frame, spec, protocol).alias("is_test"))
    splits = [split_seed(index, spec, seed, protocol) for seed in protocol.data.seeds]
    for split in splits:
        check_no_leak(index, split)
    return {
        "images": index.height,
        "groups": index["group_id"].n_unique(),
        "seeds": len(splits),
        "subsets": sum(split.sizes.height for split in splits),
        "classes_scored": int(eligible_classes(index, spec, splits, protocol)["eligible"].sum()),
    }


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument("root", type=Path, help="folder with ISIC_2019_Training_GroundTruth.csv and ..._Metadata.csv")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    seconds = []
    for _ in range(options.repeats):
        began = time.perf_counter()
        counts = prepare(options.root)
        seconds.append(time.perf_counter() - began)
    figures = {
        **counts,
        "threads": 1,
        "repetitions": options.repeats,
        "seconds": spread(seconds),
        "peak_bytes": peak_bytes(),
    }
    report(figures, "numpy", "polars", file=options.json)


if __name__ == "__main__":
    main()
