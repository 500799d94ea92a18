"""Checking a data set before anything is measured on it: what is wrong, what is left out, and what would be used."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import SUBGROUP
from crs_assets.science.datasets.counts import check_expected, count_summary
from crs_assets.science.datasets.duplicates import CONFLICTING
from crs_assets.science.datasets.errors import DatasetError, row_list
from crs_assets.science.datasets.index import ProgressCallback, build_index, presume_index
from crs_assets.science.datasets.manifest import absent_subgroups
from crs_assets.science.datasets.near_duplicates import near_duplicates
from crs_assets.science.datasets.raw_table import DECLARED, UNGROUPED
from crs_assets.science.datasets.readers import read_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import DatasetIndex, RawTable
from crs_assets.science.images.sources import NPZ
from crs_assets.science.labels import LABEL, LabelError
from crs_assets.science.protocol import Protocol, load_protocol
from crs_assets.science.splits import (
    LeakError,
    check_no_leak,
    eligible_classes,
    eligible_target_classes,
    split_seed,
    take_official_test,
)

# Above this share of images without a known group, splits cannot be trusted to keep patients apart.
MAX_UNGROUPED = 0.2


@dataclass(frozen=True)
class DatasetCheck:
    """What a check found.

    Attributes:
        dataset: Data set id.
        problems: What has to be corrected; the benchmark refuses the data set, or its results would mean nothing.
        exclusions: Images that are left out, by reason, with the rows of the table.
        warnings: What deserves a look.
        measured_only: Whether it can be measured and gets no score all the same, for a reason among the warnings.
        counts: As ``count_summary``; empty where the tables could not be read.
        classes: As ``eligible_classes`` or, for a target, ``eligible_target_classes``; empty where there is no index.
        roles: Images and groups of each role at the first seed; empty for a target.
        fractions: Label fractions of the first seed with their realised sizes; empty for a target.
        near_duplicates: Confirmed pairs, where they were asked for.
    """

    dataset: str
    problems: tuple[str, ...] = ()
    exclusions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    measured_only: bool = False
    counts: pl.DataFrame = field(default_factory=pl.DataFrame)
    classes: pl.DataFrame = field(default_factory=pl.DataFrame)
    roles: pl.DataFrame = field(default_factory=pl.DataFrame)
    fractions: pl.DataFrame = field(default_factory=pl.DataFrame)
    near_duplicates: pl.DataFrame = field(default_factory=pl.DataFrame)

    @property
    def usable(self) -> bool:
        """Whether nothing has to be corrected."""
        return not self.problems


@dataclass(frozen=True)
class _Preview:
    classes: pl.DataFrame
    roles: pl.DataFrame
    fractions: pl.DataFrame
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def check_dataset(
    root: Path,
    spec: DatasetSpec,
    *,
    protocol: Protocol | str = "crs-v1",
    images: bool = True,
    workers: int = 1,
    look_alikes: bool = False,
    progress: ProgressCallback | None = None,
) -> DatasetCheck:
    """Read a data set as the benchmark would, and say everything that it would say, at once.

    Nothing is written. A data set that cannot be read gives a check with problems, not an error.

    Args:
        root: The data set's folder.
        spec: The data set.
        protocol: Whose splits and eligibility rule are previewed: a protocol, or the id of a shipped one.
        images: Whether images are opened; without, the tables decide, and every file that is there counts as sound.
        workers: Threads that decode.
        look_alikes: Whether near-duplicates are looked for too, where the specialty allows it; decodes once more.
        progress: Told how far the decoding is.
    """
    rules = protocol if isinstance(protocol, Protocol) else load_protocol(protocol)
    absent = _absent_subgroups(root, spec)
    try:
        raw = read_table(root, spec)
        index = (
            build_index(raw, root, spec, workers=workers, progress=progress)
            if images
            else presume_index(raw, root, spec)
        )
    except DatasetError as error:
        return DatasetCheck(spec.id, problems=error.problems, warnings=tuple(absent.values()))
    if spec.test_split == "official":
        index = replace(index, frame=take_official_test(index.frame))
    origin = raw.frame.select("image_id").hstack(raw.origin)
    preview = _preview(index.frame, spec, rules)
    pairs = pl.DataFrame()
    blank = _blank_subgroups(raw, [name for name in spec.subgroups if name not in absent])
    warnings = [*absent.values(), *blank, *_warnings(raw, index, spec), *preview.warnings]
    if look_alikes:
        pairs, told = _look_alikes(index.frame, root, spec, workers)
        warnings += told
    return DatasetCheck(
        dataset=spec.id,
        problems=(*(_declared_otherwise(raw, index.frame, root) if images else ()), *preview.problems),
        exclusions=tuple(_exclusions(raw, index.frame, origin)),
        warnings=tuple(warnings),
        measured_only=bool(preview.warnings),
        counts=count_summary(index, spec),
        classes=preview.classes,
        roles=preview.roles,
        fractions=preview.fractions,
        near_duplicates=pairs,
    )


def render_check(check: DatasetCheck) -> str:
    """A check as plain text, most pressing first."""
    usable = "can be measured, but not scored: see the warnings" if check.measured_only else "can be used"
    verdict = usable if check.usable else f"{len(check.problems)} problem(s) to correct"
    sections = [f"{check.dataset}: {verdict}"]
    for title, lines in (
        ("Problems", check.problems),
        ("Left out", check.exclusions),
        ("Warnings", check.warnings),
        ("Counts", _aligned(check.counts.drop("dataset", strict=False))),
        ("Classes", _class_lines(check.classes)),
        ("Roles (first seed)", _aligned(check.roles)),
        ("Label subsets (first seed)", _aligned(check.fractions)),
    ):
        if lines:
            sections.append("\n".join([title, *(f"  {line}" for line in lines)]))
    return "\n\n".join(sections) + "\n"


def _preview(frame: pl.DataFrame, spec: DatasetSpec, protocol: Protocol) -> _Preview:
    """Roles, subsets and K as the benchmark would have them."""
    nothing = pl.DataFrame()
    try:
        if spec.role == "target":
            classes = eligible_target_classes(frame, spec, spec.classes, protocol)
            return _Preview(classes, nothing, nothing, tuple(_none_scored(classes)), ())
        splits = [split_seed(frame, spec, seed, protocol) for seed in protocol.data.seeds]
        for split in splits:
            check_no_leak(frame, split)
        classes = eligible_classes(frame, spec, splits, protocol)
    except (LabelError, LeakError, ValueError) as error:
        return _Preview(nothing, nothing, nothing, (str(error),), ())
    joined = splits[0].frame.join(frame.select("image_id", "group_id"), on="image_id")
    roles = joined.group_by("role").agg(pl.len().alias("images"), pl.col("group_id").n_unique().alias("groups"))
    warnings = []
    if not all(split.distinct_fractions for split in splits):
        warnings.append(
            "two label fractions come to the same images: label efficiency is not estimable, so there is no score; "
            "more images, or a protocol with fewer fractions, is needed."
        )
    return _Preview(classes, roles.sort("role"), splits[0].sizes, tuple(_none_scored(classes)), tuple(warnings))


def _none_scored(classes: pl.DataFrame) -> Iterator[str]:
    if not classes["eligible"].any():
        yield "no class has enough positives and negatives to be scored. Add images, or join rare classes."


def _exclusions(raw: RawTable, frame: pl.DataFrame, origin: pl.DataFrame) -> Iterator[str]:
    yield from (f"{item.rows} rows: {item.reason}" for item in raw.exclusions)
    refused = frame.filter(pl.col("quarantine").is_not_null()).join(origin, on="image_id")
    grouped = refused.group_by("quarantine", "table", maintain_order=True).agg("row")
    for reason, table, rows in sorted(grouped.iter_rows()):
        hint = "; copies of one image contradict each other" if reason == CONFLICTING else ""
        yield f"{len(rows)} images: {reason}{hint} ({table}, {row_list(sorted(rows))})"


def _absent_subgroups(root: Path, spec: DatasetSpec) -> dict[str, str]:
    """Subgroup -> what is told of it, where a table of one's own has no column for it."""
    if spec.reader != "manifest":
        return {}
    try:
        return absent_subgroups(root, spec)
    except DatasetError:
        # The reader says what is wrong with the table.
        return {}


def _blank_subgroups(raw: RawTable, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if raw.frame[f"{SUBGROUP}:{name}"].null_count() == raw.frame.height:
            yield f"subgroup {name!r} is unknown for every image: fill its column, or take {name!r} out of subgroups."


def _warnings(raw: RawTable, index: DatasetIndex, spec: DatasetSpec) -> Iterator[str]:
    yield from check_expected(index, spec)
    images = raw.frame.height
    ungrouped = images if spec.group == "image" else sum(n.rows for n in raw.notices if n.reason == UNGROUPED)
    if ungrouped > MAX_UNGROUPED * images:
        known = "patient" if spec.group == "image" else spec.group
        yield (
            f"{ungrouped} of {images} images have no known {known}: images of one person may lie on two sides of a "
            "split."
        )
    used = index.frame.filter(pl.col("quarantine").is_null())
    for name, count in used["flags"].explode().drop_nulls().value_counts().sort("flags").iter_rows():
        yield f"{count} images are flagged {name}."
    if (sex := f"{SUBGROUP}:sex") in used.columns and spec.group != "image":
        values = used.group_by("group_id").agg(pl.col(sex).drop_nulls().n_unique().alias("values"))
        if mixed := values.filter(pl.col("values") > 1).height:
            yield f"{mixed} groups have more than one sex."
    yield from _one_sided_sites(used, spec)


def _one_sided_sites(used: pl.DataFrame, spec: DatasetSpec) -> Iterator[str]:
    site = f"{SUBGROUP}:site"
    if site not in used.columns or spec.task == "multilabel":
        return
    classes = used.filter(pl.col(site).is_not_null()).group_by(site).agg(pl.col(LABEL).n_unique().alias("classes"))
    if count := classes.filter(pl.col("classes") == 1).height:
        yield f"{count} of {classes.height} sites have one class only: nothing can be said about transfer to them."


def _look_alikes(frame: pl.DataFrame, root: Path, spec: DatasetSpec, workers: int) -> tuple[pl.DataFrame, list[str]]:
    try:
        pairs = near_duplicates(frame, root, spec, workers=workers).filter("confirmed")
    except ValueError as error:
        return pl.DataFrame(), [str(error)]
    across = pairs.filter(~pl.col("same_group")).height
    told = [f"{across} pairs of images in different groups look alike: one person under two ids?"] if across else []
    return pairs, told


def _declared_otherwise(raw: RawTable, frame: pl.DataFrame, root: Path) -> Iterator[str]:
    """Facts that a manifest declares of its files and that do not hold."""
    facts = [name for name in raw.origin.columns if name.startswith(f"{DECLARED}:")]
    if not facts:
        return
    measured = frame.select("image_id", "height", "width", "quarantine")
    rows = raw.frame.select("image_id", "path").hstack(raw.origin).join(measured, on="image_id")
    rows = rows.filter(pl.col("quarantine").is_null() & ~pl.col("path").str.starts_with(NPZ))
    for column in facts:
        fact = column.removeprefix(f"{DECLARED}:")
        wrong: dict[str, list[int]] = {}
        for row in rows.filter(pl.col(column).is_not_null()).iter_rows(named=True):
            if str(row[column]).strip().lower() != _measured(fact, row, root):
                wrong.setdefault(row["table"], []).append(row["row"])
        for table, numbers in sorted(wrong.items()):
            yield f"{table}: column {fact!r} differs from the files ({row_list(sorted(numbers))}). Correct either."


def _measured(fact: str, row: dict[str, object], root: Path) -> str:
    path = root / str(row["path"])
    if fact == "sha256":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return str(path.stat().st_size if fact == "bytes" else row[fact])


def _class_lines(classes: pl.DataFrame) -> list[str]:
    if classes.is_empty():
        return []
    verdict = pl.when("eligible").then(pl.lit("scored")).otherwise(pl.lit("not scored: ") + pl.col("reason"))
    return _aligned(
        classes.select("class", pl.col("test_positives"), pl.col("test_negatives"), verdict.alias("verdict"))
    )


def _aligned(table: pl.DataFrame) -> list[str]:
    """A table as lines of left-aligned columns, its header first."""
    if table.is_empty():
        return []
    cells = [table.columns, *([str(cell) for cell in row] for row in table.iter_rows())]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
