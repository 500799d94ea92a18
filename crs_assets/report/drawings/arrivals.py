"""Picture of what arriving encoders do to published scores."""

import numpy as np
import polars as pl

from crs_assets.report import canvas
from crs_assets.report.canvas import Drawing
from crs_assets.report.drawings.looks import heading, label, plain
from crs_assets.report.numbers import decimals

WIDTH, HEIGHT, HEAD, LEFT = 1000, 420, 126, 90
BINS = 40


def displacements(trials: pl.DataFrame, rules: tuple[str, str]) -> Drawing:
    """How often published scores move by how much, over trials and encoders, under two rules.

    Args:
        trials: ``rule``, ``displacement``.
        rules: The one that reads who arrives, then the one that does not.
    """
    with canvas.style():
        figure = canvas.new_figure(WIDTH, HEIGHT)
        heading(
            figure,
            "When encoders arrive",
            "Displacement of published scores over trials and encoders. The frozen panel reads no newcomer.",
        )
        axes = plain(canvas.add_axes(figure, LEFT, HEAD, WIDTH - LEFT - 40, HEIGHT - HEAD - 70))
        largest = max(trials["displacement"].to_numpy().max(initial=0.0), 1e-9)
        edges = np.linspace(0, largest, BINS + 1).tolist()
        for rule, colour in zip(rules, (canvas.VERMILLION, canvas.BLUE), strict=True):
            moved = trials.filter(pl.col("rule") == rule)["displacement"].to_numpy()
            told = f"{rule}: at most {decimals(moved.max(initial=0.0))}"
            share = np.full(len(moved), 100 / max(len(moved), 1))
            axes.hist(moved, bins=edges, weights=share, color=colour, alpha=0.6, label=told)
        axes.legend(frameon=False)
        label(axes, "", "displacement in CRS", "% of the scores")
        return canvas.drawn(figure)
