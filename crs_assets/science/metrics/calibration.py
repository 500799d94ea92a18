"""Does a stated probability mean what it says: expected calibration error, its variants, reliability tables.

Three different quantities share the name in the literature and never share a column here: top label (multiclass),
positive class (binary, multilabel), and class-wise (every class of a softmax in turn).
"""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from crs_assets.science.metrics.binning import (
    debiased_rms_error,
    equal_mass_error,
    equal_width_error,
    equal_width_sums,
    monotonic_sweep_error,
)
from crs_assets.science.validation import (
    BoolArray,
    FloatArray,
    LabelColumns,
    class_subset,
    label_probabilities,
    multiclass_probabilities,
)

PairError = Callable[[FloatArray, BoolArray], float]


def expected_calibration_error(y_true: ArrayLike, y_proba: ArrayLike, *, n_bins: int = 15) -> float:
    """Top-label expected calibration error over equal-width bins [1]_.

    The confidence p of a row is its largest probability; bin b = min(floor(n_bins p), n_bins - 1) in float64; the
    error is the sum over bins of n_b / n times |mean p - share correct|.

    Args:
        y_true: Class indices (n,).
        y_proba: Probabilities (n, K), rows summing to 1; the lowest index is the top label among equal ones.
        n_bins: Number of bins.

    Returns:
        An error in [0, 1], lower is better. Not 0 for a perfect predictor on finite data: see ``null_band``.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.

    References:
        .. [1] Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", ICML 2017.

    Examples:
        >>> expected_calibration_error([0, 1], [[0.0, 1.0], [1.0, 0.0]])
        1.0
    """
    return equal_width_error(*top_label(y_true, y_proba), n_bins)


def binary_expected_calibration_error(
    y_true: ArrayLike, y_proba: ArrayLike, *, observed: ArrayLike | None = None, n_bins: int = 15
) -> float:
    """Expected calibration error of the positive-class probability against the label's frequency.

    Not the top-label error of the two-column softmax: there p and 1 - p share a bin.

    Args:
        y_true: 0/1 labels (n,); NaN = not observed.
        y_proba: Probability of the positive class (n,).
        observed: Bool mask (n,).
        n_bins: Number of equal-width bins.

    Returns:
        An error in [0, 1], lower is better; NaN if nothing is observed.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    if np.ndim(y_proba) != 1:
        raise ValueError(f"y_proba has shape {np.shape(y_proba)}, expected (n,): the positive class's probability.")
    return multilabel_expected_calibration_error(y_true, y_proba, observed=observed, n_bins=n_bins)


def multilabel_expected_calibration_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    n_bins: int = 15,
    classes: Sequence[int] | None = None,
) -> float:
    """Mean over labels of ``binary_expected_calibration_error`` on the label's observed cells.

    Args:
        y_true: 0/1 labels (n, L); NaN = not observed.
        y_proba: Probabilities (n, L), each label its own.
        observed: Bool mask (n, L).
        n_bins: Number of equal-width bins.
        classes: Labels to average over; all by default.

    Returns:
        An error in [0, 1], lower is better; labels with no observed cell are left out, NaN if none is left.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    columns = label_probabilities(y_true, y_proba, observed)
    return _mean_over_labels(columns, lambda p, outcome: equal_width_error(p, outcome, n_bins), classes)


def equal_mass_expected_calibration_error(y_true: ArrayLike, y_proba: ArrayLike, *, n_bins: int = 15) -> float:
    """Top-label expected calibration error over bins of equal count; equal confidences share a bin.

    Args:
        y_true: Class indices (n,).
        y_proba: Probabilities (n, K), rows summing to 1.
        n_bins: Number of bins before ties merge them.

    Returns:
        An error in [0, 1], lower is better.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    return equal_mass_error(*top_label(y_true, y_proba), n_bins)


def classwise_expected_calibration_error(
    y_true: ArrayLike, y_proba: ArrayLike, *, n_bins: int = 15, classes: Sequence[int] | None = None
) -> float:
    """Mean over classes of the equal-width error of p(class) against the class's frequency [1]_.

    Args:
        y_true: Class indices (n,).
        y_proba: Probabilities (n, K), rows summing to 1.
        n_bins: Number of bins.
        classes: Classes to average over; all by default.

    Returns:
        An error in [0, 1], lower is better.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.

    References:
        .. [1] Kull et al., "Beyond temperature scaling: Obtaining well-calibrated multi-class probabilities with
           Dirichlet calibration", NeurIPS 2019.
    """
    labels, probabilities = multiclass_probabilities(y_true, y_proba)
    columns = (
        equal_width_error(probabilities[:, index], labels == index, n_bins)
        for index in class_subset(classes, probabilities.shape[1])
    )
    return float(np.mean(list(columns)))


def debiased_rms_calibration_error(y_true: ArrayLike, y_proba: ArrayLike, *, n_bins: int = 15) -> float:
    """Top-label root-mean-square calibration error with its sampling bias taken off [1]_.

    Args:
        y_true: Class indices (n,).
        y_proba: Probabilities (n, K), rows summing to 1.
        n_bins: Number of equal-mass bins before ties merge them.

    Returns:
        An L2 error in [0, 1], lower is better; not on the scale of the L1 errors.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.

    References:
        .. [1] Kumar, Liang and Ma, "Verified Uncertainty Calibration", NeurIPS 2019.
    """
    return debiased_rms_error(*top_label(y_true, y_proba), n_bins)


def monotonic_sweep_calibration_error(y_true: ArrayLike, y_proba: ArrayLike) -> float:
    """Top-label error over as many equal-mass bins as keep the shares correct non-decreasing (ECE-sweep) [1]_.

    Args:
        y_true: Class indices (n,).
        y_proba: Probabilities (n, K), rows summing to 1.

    Returns:
        An error in [0, 1], lower is better.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.

    References:
        .. [1] Roelofs, Cain, Shlens and Mozer, "Mitigating Bias in Calibration Error Estimation", AISTATS 2022.
    """
    return monotonic_sweep_error(*top_label(y_true, y_proba))


def multilabel_equal_mass_expected_calibration_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    n_bins: int = 15,
    classes: Sequence[int] | None = None,
) -> float:
    """Mean over labels of the equal-mass error of p(label); arguments as ``multilabel_expected_calibration_error``.

    Returns:
        An error in [0, 1], lower is better; labels with no observed cell are left out, NaN if none is left.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    columns = label_probabilities(y_true, y_proba, observed)
    return _mean_over_labels(columns, lambda p, outcome: equal_mass_error(p, outcome, n_bins), classes)


def multilabel_debiased_rms_calibration_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    n_bins: int = 15,
    classes: Sequence[int] | None = None,
) -> float:
    """Mean over labels of the debiased L2 error of p(label); arguments as ``multilabel_expected_calibration_error``.

    Returns:
        An L2 error in [0, 1], lower is better; labels with no observed cell are left out, NaN if none is left.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    columns = label_probabilities(y_true, y_proba, observed)
    return _mean_over_labels(columns, lambda p, outcome: debiased_rms_error(p, outcome, n_bins), classes)


def top_label(y_true: ArrayLike, y_proba: ArrayLike) -> tuple[FloatArray, BoolArray]:
    """Confidence of each row's top label, and whether it is the true one.

    Args:
        y_true: Class indices (n,).
        y_proba: Probabilities (n, K), rows summing to 1; the lowest index wins among equal ones.

    Returns:
        (float64 (n,) in [1 / K, 1], bool (n,)).

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    labels, probabilities = multiclass_probabilities(y_true, y_proba)
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == labels


def reliability_bins(outcome: ArrayLike, probability: ArrayLike, *, n_bins: int = 15) -> pl.DataFrame:
    """The table behind a reliability diagram.

    Args:
        outcome: 0/1 outcome of each stated probability (n,); NaN = not observed. For a multiclass diagram pass the
            two results of ``top_label``, swapped.
        probability: Stated probability (n,).
        n_bins: Number of equal-width bins.

    Returns:
        One row per bin, ascending: ``lower``, ``upper`` (edges), ``count``, ``mean_probability``, ``frequency``; the
        means of an empty bin are null.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    if np.ndim(probability) != 1:
        raise ValueError(f"probability has shape {np.shape(probability)}, expected (n,); make one table per label.")
    positive, stated = label_probabilities(outcome, probability).column(0)
    sums = equal_width_sums(stated, positive, n_bins)
    edges = np.arange(n_bins + 1) / n_bins
    count = pl.col("count")
    table = pl.DataFrame(
        {
            "lower": edges[:-1],
            "upper": edges[1:],
            "count": sums.rows.astype(np.int64),
            "p": sums.probability,
            "y": sums.outcome,
        }
    )
    return table.select(
        "lower",
        "upper",
        "count",
        pl.when(count > 0).then(pl.col("p") / count).alias("mean_probability"),
        pl.when(count > 0).then(pl.col("y") / count).alias("frequency"),
    )


def _mean_over_labels(columns: LabelColumns, error: PairError, classes: Sequence[int] | None) -> float:
    chosen = [index for index in class_subset(classes, columns.score.shape[1]) if columns.observed[:, index].any()]
    if not chosen:
        return float("nan")
    pairs = (columns.column(index) for index in chosen)
    return float(np.mean([error(probability, outcome) for outcome, probability in pairs]))
