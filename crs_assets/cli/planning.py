"""How many images a suite has, told before anything is spent: no image is opened."""

from dataclasses import dataclass, field

from crs_assets.resources.bench import Bench
from crs_assets.science.datasets import DatasetError, DatasetSpec, read_table
from crs_assets.stages.data import DatasetIndex


@dataclass(frozen=True)
class ImageCounts:
    """Images of each image set as far as anything on this machine tells; the catalogue's own counts are not repeated.

    Attributes:
        known: Image set -> images, from its index or its tables.
        from_tables: Those counted from tables: damaged files and copies are still among them.
        unknown: Image set that nothing counts -> why, and what makes its count known.
    """

    known: dict[str, int] = field(default_factory=dict)
    from_tables: list[str] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)


def count_images(bench: Bench) -> ImageCounts:
    """Count the images of a suite's image sets from indexes, and where neither these nor the catalogue do, from tables.

    Args:
        bench: The bench.
    """
    counts = ImageCounts()
    for name, spec in bench.suite.image_sets.items():
        if manifest := bench.store.peek(bench.key(DatasetIndex.name, name)):
            counts.known[name] = int(manifest.summary["images_used"])
        elif spec.expected.images is None and spec.planned_images is None:
            _count_tables(bench, spec, counts)
    return counts


def _count_tables(bench: Bench, spec: DatasetSpec, counts: ImageCounts) -> None:
    root = bench.roots.path(spec.id)
    if not root.is_dir():
        config = bench.home.path / "config.toml"
        named = f"no folder {root}; put it there, or name its place: [data_roots] {spec.id} in {config}"
        drawn = f"phantoms, drawn when first needed; to draw them now: crs dataset check {spec.id}"
        counts.unknown[spec.id] = drawn if spec.phantom else named
        return
    try:
        counts.known[spec.id] = read_table(root, spec).frame.height
        counts.from_tables.append(spec.id)
    except DatasetError:
        counts.unknown[spec.id] = f"its tables cannot be read; what is wrong with them: crs dataset check {spec.id}"
