"""What an axis profile is made of, as one picture: reliability, label efficiency, severity, per data set."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from crs_assets.report import canvas
from crs_assets.report.names import degradation_name
from crs_assets.report.numbers import decimals
from crs_assets.science.protocol import CLEAN, TRANSFER, Protocol
from crs_assets.science.validation import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The layout, in pixels.
WIDTH, HEAD, ROW, FOOT = 1400, 138, 296, 40
PANEL_TOP, PANEL_HEIGHT = 34, 194
RELIABILITY, EFFICIENCY, DISCRIMINATION, CALIBRATION = (70, 270), (420, 270), (770, 260), (1110, 260)

LOOKS = ((canvas.BLUE, "o"), (canvas.VERMILLION, "s"), (canvas.GREEN, "^"), (canvas.PURPLE, "D"), (canvas.ORANGE, "v"))
METRICS = ("auroc", "ece", "ece_null")
BAR_SHARE = 0.3
"""Height of the fullest bin's bar, as a share of the reliability diagram."""
FEW = 10
"""Bins with fewer predictions are drawn hollow: their frequency is mostly noise."""


@dataclass(frozen=True)
class DatasetRuns:
    """One encoder on one data set.

    Attributes:
        name: Data set.
        curves: Seed -> label fractions and clean AUROC of its converged runs.
        means: (fraction, condition) -> metric -> mean over the converged seeds; NaN where none has a finite value.
        bins: Clean reliability bins at all labels, pooled over seeds.
        n_eval: Images of the clean test set.
        failed: Runs that did not converge.
    """

    name: str
    curves: Mapping[int, tuple[list[float], list[float]]]
    means: Mapping[tuple[float, str], Mapping[str, float]]
    bins: pl.DataFrame
    n_eval: int
    failed: int

    def mean(self, metric: str, fraction: float, condition: str) -> float:
        """Mean over seeds; NaN where there is none."""
        return self.means.get((fraction, condition), {}).get(metric, math.nan)

    @property
    def has_target(self) -> bool:
        """Whether the probes were applied to a transfer target."""
        return any(condition == TRANSFER for _, condition in self.means)


def profile_png(encoder_title: str, runs: pl.DataFrame, reliability: pl.DataFrame, protocol: Protocol) -> bytes:
    """One row of panels per data set: reliability diagram, label-efficiency curve, severity curves of AUROC and ECE.

    Args:
        encoder_title: The encoder's name for people.
        runs: Run metrics, one row per (dataset, seed, fraction, condition), with ``auroc``, ``ece``, ``ece_null``,
            ``n_eval`` and ``converged``; runs that did not converge are left out and counted.
        reliability: Bins of all labels' predictions: ``dataset``, ``seed``, ``condition``, ``lower``, ``upper``,
            ``count``, ``mean_probability``, ``frequency``.
        protocol: Names the fractions, perturbations and severities, in its order.

    Returns:
        PNG, 1400 pixels wide; the same tables give the same bytes in any order of rows.
    """
    with canvas.style():
        return canvas.png_bytes(_figure(encoder_title, runs, reliability, protocol))


def profile_drawing(
    encoder_title: str, runs: pl.DataFrame, reliability: pl.DataFrame, protocol: Protocol
) -> canvas.Drawing:
    """The same picture in both forms."""
    with canvas.style():
        return canvas.drawn(_figure(encoder_title, runs, reliability, protocol))


def _figure(encoder_title: str, runs: pl.DataFrame, reliability: pl.DataFrame, protocol: Protocol) -> "Figure":
    datasets = list(_datasets(runs, reliability))
    figure = canvas.new_figure(WIDTH, HEAD + ROW * max(len(datasets), 1) + FOOT)
    _headings(figure, encoder_title, protocol, has_target=any(data.has_target for data in datasets))
    for position, data in enumerate(datasets):
        top = HEAD + ROW * position
        _title(figure, data, top)
        _reliability(_panel(figure, RELIABILITY, top), data, protocol)
        _efficiency(_panel(figure, EFFICIENCY, top), data, protocol)
        _severity(_panel(figure, DISCRIMINATION, top), data, "auroc", "AUROC", protocol)
        _severity(_panel(figure, CALIBRATION, top), data, "ece", "ECE", protocol)
    _footer(figure, HEAD + ROW * max(len(datasets), 1))
    return figure


def png_markdown(png: bytes, alt: str) -> str:
    """A picture as a Markdown image that carries its own bytes.

    Args:
        png: The picture.
        alt: What it shows, in words; brackets and line breaks would end the Markdown and are replaced.
    """
    words = " ".join(alt.replace("[", "(").replace("]", ")").split())
    return f"![{words}]({canvas.png_address(png)})"


def _datasets(runs: pl.DataFrame, reliability: pl.DataFrame) -> Iterator[DatasetRuns]:
    # Sums of floats depend on the order of rows, and a file's order is nobody's promise.
    ordered = runs.sort("seed", "fraction", "condition")
    for name in runs["dataset"].unique(maintain_order=True):
        own = ordered.filter(pl.col("dataset") == name)
        converged = own.filter(pl.col("converged"))
        clean = converged.filter(pl.col("condition") == CLEAN)
        bins = reliability.filter((pl.col("dataset") == name) & (pl.col("condition") == CLEAN) & (pl.col("count") > 0))
        yield DatasetRuns(
            name=str(name),
            curves={
                seed: (rows["fraction"].to_list(), rows["auroc"].to_list())
                for (seed,), rows in clean.group_by("seed", maintain_order=True)
            },
            means=_means(converged),
            bins=_pooled(bins.sort("lower", "seed")),
            n_eval=max(clean["n_eval"], default=0),
            failed=own.height - converged.height,
        )


def _means(runs: pl.DataFrame) -> dict[tuple[float, str], dict[str, float]]:
    finite = [pl.col(name).filter(pl.col(name).is_finite()).mean().fill_null(math.nan) for name in METRICS]
    table = runs.group_by("fraction", "condition", maintain_order=True).agg(finite)
    return {
        (row["fraction"], row["condition"]): {name: row[name] for name in METRICS}
        for row in table.iter_rows(named=True)
    }


def _pooled(bins: pl.DataFrame) -> pl.DataFrame:
    """Bins of several seeds as one: counts added, means weighted by them."""
    count = pl.col("count")
    return (
        bins.group_by("lower", "upper", maintain_order=True)
        .agg(
            (pl.col("mean_probability") * count).sum() / count.sum(),
            (pl.col("frequency") * count).sum() / count.sum(),
            (count.sum() / pl.len()).alias("count_per_seed"),
            count.sum(),
        )
        .sort("lower")
    )


def _headings(figure: "Figure", encoder_title: str, protocol: Protocol, *, has_target: bool) -> None:
    canvas.write(figure, 30, 22, encoder_title, fontsize=16, weight="bold")
    about = f"linear probe  ·  protocol {protocol.id}  ·  {len(protocol.data.seeds)} seeds"
    canvas.write(figure, 30, 56, about, fontsize=11, color=canvas.SOFT)
    entries = [(degradation_name(item.id), *look) for item, look in zip(protocol.perturbations, LOOKS, strict=False)]
    if has_target:
        entries.append((TRANSFER + " target", canvas.INK, "*"))
    handles = [_handle(*entry) for entry in entries]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(22 / WIDTH, 1 - 74 / (figure.get_figheight() * 100)),
        ncols=len(handles),
        frameon=False,
        fontsize=10.5,
        columnspacing=1.4,
        handletextpad=0.4,
    )


def _handle(label: str, colour: str, marker: str) -> Any:
    from matplotlib.lines import Line2D

    line: Any = "none" if marker == "*" else "-"
    size = 10 if marker == "*" else 5.5
    return Line2D([], [], color=colour, marker=marker, linestyle=line, markersize=size, label=label)


def _title(figure: "Figure", data: DatasetRuns, top: int) -> None:
    failed = f"   ({data.failed} runs did not converge and are left out)" if data.failed else ""
    canvas.write(figure, 30, top - 14, data.name + failed, fontsize=12.5, weight="bold")


def _panel(figure: "Figure", place: tuple[int, int], top: int) -> "Axes":
    axes = canvas.add_axes(figure, place[0], top + PANEL_TOP, place[1], PANEL_HEIGHT)
    axes.grid(color=canvas.GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    return axes


def _reliability(axes: "Axes", data: DatasetRuns, protocol: Protocol) -> None:
    """Observed against stated, the diagonal, and the share of predictions in each bin as bars at the foot."""
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    ticks, labels = [0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"]
    axes.set_xticks(ticks, labels)
    axes.set_yticks(ticks, labels)
    axes.plot([0, 1], [0, 1], color=canvas.FAINT, linewidth=1, linestyle="--")
    if data.bins.height:
        counts = data.bins["count"].to_numpy()
        shares = np.zeros(protocol.metrics.ece_bins)
        shares[np.rint(data.bins["lower"].to_numpy() * len(shares)).astype(int)] = counts / counts.max()
        edges = np.arange(len(shares) + 1) / len(shares)
        axes.stairs(BAR_SHARE * shares, edges, fill=True, facecolor=canvas.GRID, edgecolor="white", linewidth=0.8)
        stated, observed = data.bins["mean_probability"].to_numpy(), data.bins["frequency"].to_numpy()
        low, high = _null_band(stated, data.bins["count_per_seed"].to_numpy(), protocol.metrics.null_band_level)
        axes.fill_between(stated, low, high, color=canvas.SKY, alpha=0.25, linewidth=0)
        solid = counts >= FEW
        axes.plot(stated, observed, color=canvas.BLUE, linewidth=1.2)
        axes.plot(stated[solid], observed[solid], "o", color=canvas.BLUE, markersize=5)
        axes.plot(stated[~solid], observed[~solid], "o", color=canvas.BLUE, markerfacecolor="white", markersize=5)
    full = protocol.data.fractions[-1]
    ece, null = (decimals(data.mean(metric, full, CLEAN)) for metric in ("ece", "ece_null"))
    _label(axes, f"ECE {ece}, null band to {null}, n = {data.n_eval:,}", "stated probability")
    axes.set_ylabel("observed frequency")


def _null_band(stated: FloatArray, counts: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Between which frequencies a bin of perfectly calibrated predictions lies with that probability, one seed's count.

    Consistency bars: Broecker and Smith, "Increasing the reliability of reliability diagrams", 2007.
    """
    # A second of import, which loading the code location would pay.
    from scipy.stats import binom

    n = np.maximum(np.rint(counts), 1)
    low, high = (binom.ppf(share, n, stated) / n for share in ((1 - level) / 2, (1 + level) / 2))
    return np.asarray(low), np.asarray(high)


def _efficiency(axes: "Axes", data: DatasetRuns, protocol: Protocol) -> None:
    """AUROC against the label fraction: a thin line per seed, their mean over it."""
    fractions = protocol.data.fractions
    axes.set_xscale("log")
    for own_fractions, aurocs in data.curves.values():
        axes.plot(own_fractions, aurocs, color=canvas.SKY, linewidth=0.9)
    means = [data.mean("auroc", fraction, CLEAN) for fraction in fractions]
    axes.plot(fractions, means, color=canvas.BLUE, marker="o", markersize=5, linewidth=2)
    axes.set_xticks(list(fractions), [f"{100 * fraction:g} %" for fraction in fractions])
    axes.set_xticks([], minor=True)
    axes.set_xlim(fractions[0] / 1.25, fractions[-1] * 1.25)
    _label(axes, "Label efficiency: AUROC, clean", "share of training labels")


def _severity(axes: "Axes", data: DatasetRuns, metric: str, name: str, protocol: Protocol) -> None:
    """The metric against severity, severity 0 being clean; the transfer target stands apart at the right."""
    full = protocol.data.fractions[-1]
    severities = sorted({severity for item in protocol.perturbations for severity in item.severities})
    for item, (colour, marker) in zip(protocol.perturbations, LOOKS, strict=False):
        conditions = (CLEAN, *(f"{item.id}-{severity}" for severity in item.severities))
        values = [data.mean(metric, full, condition) for condition in conditions]
        axes.plot((0, *item.severities), values, color=colour, marker=marker, markersize=4.5)
    ticks, labels = [0, *severities], ["clean", *map(str, severities)]
    if data.has_target:
        ticks, labels = [*ticks, severities[-1] + 1], [*labels, "target"]
        axes.plot(ticks[-1], data.mean(metric, full, TRANSFER), "*", color=canvas.INK, markersize=11)
    axes.set_xticks(ticks, labels)
    axes.set_xlim(-0.25, ticks[-1] + 0.35)
    _label(axes, f"{name} by severity, all labels", "severity")


def _footer(figure: "Figure", top: int) -> None:
    note = (
        "Means over seeds. Reliability: clean, all labels, seeds (and labels of multilabel sets) pooled; "
        f"grey bars: share of predictions; hollow: fewer than {FEW}; shaded: where a calibrated probe's bins would lie."
    )
    canvas.write(figure, 30, top + 6, note, fontsize=9.5, color=canvas.SOFT)


def _label(axes: "Axes", title: str, across: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, pad=7)
    axes.set_xlabel(across, labelpad=3)
