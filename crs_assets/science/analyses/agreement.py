"""How far the rankings by one quantity agree with those by another: AUROC, axes, readings and probes against CRS."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from crs_assets.science.analyses.cells import mean_over, oriented
from crs_assets.science.protocol import AXES, Protocol
from crs_assets.science.statistics import rank_agreement

CRS = "crs"
COMMON = "common data sets"
EXISTING = "existing cells"
ONE = "one data set"
CONTROL_COLUMNS = ("encoder", "dataset", "probe", "axis", "value")

COMPARISON_SCHEMA: dict[str, Any] = {
    "n": pl.Int64,
    "kendall_tau": pl.Float64,
    "spearman_rho": pl.Float64,
    "reversed_pairs": pl.Int64,
    "tied_pairs": pl.Int64,
    "pairs": pl.Int64,
    "mean_displacement": pl.Float64,
    "top_k": pl.Int64,
    "top_k_overlap": pl.Float64,
    "is_top_k_tied": pl.Boolean,
    "reason": pl.Utf8,
}
_KEY_SCHEMA: dict[str, Any] = dict.fromkeys(("scope", "dataset", "reading", "a", "b"), pl.Utf8)
AGREEMENT_SCHEMA: dict[str, Any] = {**_KEY_SCHEMA, **COMPARISON_SCHEMA}
MOVES_SCHEMA: dict[str, Any] = {
    **_KEY_SCHEMA,
    "encoder": pl.Utf8,
    **dict.fromkeys(("rank_a", "rank_b", "move"), pl.Float64),
}


@dataclass(frozen=True)
class Agreements:
    """Every comparison of two rankings.

    Attributes:
        table: One row per comparison (``AGREEMENT_SCHEMA``); ``reason`` says why one could not be made.
        moves: One row per comparison and encoder (``MOVES_SCHEMA``): average ranks, 1 = first; a positive move = b
            places it higher.
    """

    table: pl.DataFrame
    moves: pl.DataFrame


@dataclass(frozen=True)
class _Scope:
    name: str
    datasets: tuple[str, ...]

    @property
    def dataset(self) -> str | None:
        return self.datasets[0] if self.name == ONE else None

    def means(self, cells: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        return mean_over(cells, self.datasets, columns, existing=self.name == EXISTING)


def rank_agreements(
    cells: pl.DataFrame,
    readings: Sequence[Protocol],
    *,
    common: Sequence[str],
    rankable: Sequence[str],
    top_k: int,
    control_axes: pl.DataFrame | None = None,
) -> Agreements:
    """Compare rankings over the headline's data sets, over existing cells, and on each data set.

    Each raw axis, AUROC being that of discrimination, is compared with CRS under every reading; CRS of the protocol
    with CRS of each further reading; and each axis of the linear probe with that of each control probe.

    Args:
        cells: Ranked encoders: ``reading``, ``encoder``, ``dataset``, ``crs`` and the four raw axes.
        readings: The protocol and its further readings, the protocol first.
        common: Data sets that every ranked encoder has: what the headline rests on.
        rankable: Data sets that can rank encoders.
        top_k: Size of the top group; one less than the encoders where there are not more.
        control_axes: Raw axes of control probes, under the protocol's own reading: ``encoder``, ``dataset``, ``probe``,
            ``axis`` (any of the four), ``value`` (null where not estimable). What it lacks is not compared.

    Raises:
        ValueError: If the control axes lack a column or name an unknown axis.
    """
    if control_axes is not None:
        _check_control_axes(control_axes)
    scopes = [
        _Scope(COMMON, tuple(common)),
        _Scope(EXISTING, tuple(rankable)),
        *(_Scope(ONE, (dataset,)) for dataset in rankable),
    ]
    rows: list[dict[str, Any]] = []
    moves: list[pl.DataFrame] = []
    for scope in scopes:
        for key, pair in _pairs(scope, cells, readings, control_axes):
            rows.append({**key, **compare(pair, top_k=top_k)})
            moves.append(pair.select(*(pl.lit(key[name], dtype=pl.Utf8).alias(name) for name in key), *_ranks()))
    table = pl.DataFrame(rows, schema=AGREEMENT_SCHEMA)
    return Agreements(table, pl.concat([pl.DataFrame(schema=MOVES_SCHEMA), *moves]))


def compare(pair: pl.DataFrame, *, top_k: int) -> dict[str, Any]:
    """Agreement of two columns of scores.

    Args:
        pair: ``encoder`` (distinct), ``a`` and ``b``, higher is better, no null.
        top_k: Size of the top group; one less than the encoders where there are not more.

    Returns:
        The fields of ``COMPARISON_SCHEMA``; tau and rho are None where a ranking is one tie, everything is where there
        are fewer than two encoders.
    """
    ordered = pair.sort("encoder")
    if ordered.height < 2:
        blank = dict.fromkeys(COMPARISON_SCHEMA)
        return {**blank, "n": ordered.height, "reason": f"{ordered.height} encoder(s) with both, two are needed"}
    names = ordered["encoder"].to_list()
    a, b = ordered["a"].to_numpy(), ordered["b"].to_numpy()
    found = rank_agreement(a, b, k=min(top_k, len(names) - 1), ids=names)
    fields = {name: value for name, value in asdict(found).items() if name in COMPARISON_SCHEMA}
    correlated = found.kendall_tau == found.kendall_tau
    return {
        **fields,
        "n": ordered.height,
        "kendall_tau": found.kendall_tau if correlated else None,
        "spearman_rho": found.spearman_rho if correlated else None,
        "reason": None if correlated else "one ranking is a single tie",
    }


def as_pair(a: Mapping[str, float], b: Mapping[str, float]) -> pl.DataFrame:
    """Two mappings from encoder to score as the columns that ``compare`` takes; encoders that have both."""
    shared = sorted(set(a) & set(b))
    columns = {"encoder": shared, "a": [a[name] for name in shared], "b": [b[name] for name in shared]}
    return pl.DataFrame(columns, schema={"encoder": pl.Utf8, "a": pl.Float64, "b": pl.Float64})


def _pairs(
    scope: _Scope, cells: pl.DataFrame, readings: Sequence[Protocol], control_axes: pl.DataFrame | None
) -> Iterator[tuple[dict[str, str | None], pl.DataFrame]]:
    """(what is compared, encoders with both scores) of one scope."""
    key = {"scope": scope.name, "dataset": scope.dataset}
    means = {
        reading.id: scope.means(cells.filter(pl.col("reading") == reading.id), (CRS, *AXES)) for reading in readings
    }
    for reading in readings:
        for axis in AXES:
            pair = means[reading.id].select("encoder", a=oriented(axis, reading), b=CRS)
            yield {**key, "reading": reading.id, "a": axis, "b": CRS}, pair
    first, *others = readings
    for other in others:
        pair = _joined(means[first.id].select("encoder", a=CRS), means[other.id].select("encoder", b=CRS))
        yield {**key, "reading": first.id, "a": CRS, "b": f"{CRS} of {other.id}"}, pair
    for probe, axis, values in _controls(control_axes):
        linear = means[first.id].select("encoder", a=oriented(axis, first))
        control = scope.means(values, ("value",)).select("encoder", b=oriented(axis, first, "value"))
        yield {**key, "reading": first.id, "a": axis, "b": f"{axis} of {probe}"}, _joined(linear, control)


def _controls(control_axes: pl.DataFrame | None) -> Iterator[tuple[str, Any, pl.DataFrame]]:
    if control_axes is None:
        return
    known = control_axes.with_columns(pl.col("value").fill_nan(None))
    for probe in known["probe"].unique().sort():
        for axis in AXES:
            values = known.filter((pl.col("probe") == probe) & (pl.col("axis") == axis))
            if values.height:
                yield probe, axis, values


def _joined(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    return a.join(b, on="encoder", how="inner").sort("encoder")


def _ranks() -> tuple[pl.Expr, ...]:
    rank_a, rank_b = (pl.col(side).rank("average", descending=True).cast(pl.Float64) for side in ("a", "b"))
    return pl.col("encoder"), rank_a.alias("rank_a"), rank_b.alias("rank_b"), (rank_a - rank_b).alias("move")


def _check_control_axes(control_axes: pl.DataFrame) -> None:
    missing = [name for name in CONTROL_COLUMNS if name not in control_axes.columns]
    if missing:
        raise ValueError(f"control_axes lacks {missing}, expected the columns {list(CONTROL_COLUMNS)}.")
    unknown = sorted(set(control_axes["axis"].unique()) - set(AXES))
    if unknown:
        raise ValueError(f"control_axes names the axes {unknown}, expected only {list(AXES)}.")
