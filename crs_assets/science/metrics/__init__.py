"""Metrics of predictions: discrimination, proper scores, calibration, and the axis formulas built on them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from crs_assets.science.metrics.axes import (
    AxisForm,
    Robustness,
    area_under_learning_curve,
    label_efficiency,
    robustness,
)
from crs_assets.science.metrics.calibration import (
    binary_expected_calibration_error,
    classwise_expected_calibration_error,
    debiased_rms_calibration_error,
    equal_mass_expected_calibration_error,
    expected_calibration_error,
    monotonic_sweep_calibration_error,
    multilabel_debiased_rms_calibration_error,
    multilabel_equal_mass_expected_calibration_error,
    multilabel_expected_calibration_error,
    reliability_bins,
    top_label,
)
from crs_assets.science.metrics.discrimination import (
    accuracy,
    macro_auprc,
    macro_auroc,
    per_class_auprc,
    per_class_auroc,
    quadratic_weighted_kappa,
)
from crs_assets.science.metrics.null_bands import multilabel_null_band, null_band
from crs_assets.science.metrics.proper_scores import (
    binary_brier_score,
    binary_log_loss,
    multiclass_brier_score,
    multiclass_log_loss,
    multiclass_log_loss_from_logits,
    multilabel_brier_score,
    multilabel_log_loss,
    multilabel_log_loss_from_logits,
)

Direction = Literal["higher_is_better", "lower_is_better"]
MetricKind = Literal["multiclass", "ordinal", "multilabel"]


class Metric(NamedTuple):
    """A registered metric of (y_true, y_proba).

    Attributes:
        function: Called as ``function(y_true, y_proba)``, with probabilities or monotone scores where ranks suffice.
        direction: Which way is better.
        kind: The kinds of label problem it applies to.
    """

    function: Callable[..., float]
    direction: Direction
    kind: frozenset[MetricKind]


_ANY: Final[frozenset[MetricKind]] = frozenset({"multiclass", "ordinal", "multilabel"})
_SOFTMAX: Final[frozenset[MetricKind]] = frozenset({"multiclass", "ordinal"})
_ORDINAL: Final[frozenset[MetricKind]] = frozenset({"ordinal"})
_MULTILABEL: Final[frozenset[MetricKind]] = frozenset({"multilabel"})

METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        "macro_auroc": Metric(macro_auroc, "higher_is_better", _ANY),
        "macro_auprc": Metric(macro_auprc, "higher_is_better", _ANY),
        "accuracy": Metric(accuracy, "higher_is_better", _SOFTMAX),
        "quadratic_weighted_kappa": Metric(quadratic_weighted_kappa, "higher_is_better", _ORDINAL),
        "multiclass_brier_score": Metric(multiclass_brier_score, "lower_is_better", _SOFTMAX),
        "multiclass_log_loss": Metric(multiclass_log_loss, "lower_is_better", _SOFTMAX),
        "expected_calibration_error": Metric(expected_calibration_error, "lower_is_better", _SOFTMAX),
        "equal_mass_expected_calibration_error": Metric(
            equal_mass_expected_calibration_error, "lower_is_better", _SOFTMAX
        ),
        "classwise_expected_calibration_error": Metric(
            classwise_expected_calibration_error, "lower_is_better", _SOFTMAX
        ),
        "debiased_rms_calibration_error": Metric(debiased_rms_calibration_error, "lower_is_better", _SOFTMAX),
        "monotonic_sweep_calibration_error": Metric(monotonic_sweep_calibration_error, "lower_is_better", _SOFTMAX),
        "multilabel_brier_score": Metric(multilabel_brier_score, "lower_is_better", _MULTILABEL),
        "multilabel_log_loss": Metric(multilabel_log_loss, "lower_is_better", _MULTILABEL),
        "multilabel_expected_calibration_error": Metric(
            multilabel_expected_calibration_error, "lower_is_better", _MULTILABEL
        ),
        "multilabel_equal_mass_expected_calibration_error": Metric(
            multilabel_equal_mass_expected_calibration_error, "lower_is_better", _MULTILABEL
        ),
        "multilabel_debiased_rms_calibration_error": Metric(
            multilabel_debiased_rms_calibration_error, "lower_is_better", _MULTILABEL
        ),
    }
)
"""Every metric of (y_true, y_proba), by its precise name. Adding one here is what puts it in the benchmark."""

__all__ = [
    "METRICS",
    "AxisForm",
    "Direction",
    "Metric",
    "MetricKind",
    "Robustness",
    "accuracy",
    "area_under_learning_curve",
    "binary_brier_score",
    "binary_expected_calibration_error",
    "binary_log_loss",
    "classwise_expected_calibration_error",
    "debiased_rms_calibration_error",
    "equal_mass_expected_calibration_error",
    "expected_calibration_error",
    "label_efficiency",
    "macro_auprc",
    "macro_auroc",
    "monotonic_sweep_calibration_error",
    "multiclass_brier_score",
    "multiclass_log_loss",
    "multiclass_log_loss_from_logits",
    "multilabel_brier_score",
    "multilabel_debiased_rms_calibration_error",
    "multilabel_equal_mass_expected_calibration_error",
    "multilabel_expected_calibration_error",
    "multilabel_log_loss",
    "multilabel_log_loss_from_logits",
    "multilabel_null_band",
    "null_band",
    "per_class_auprc",
    "per_class_auroc",
    "quadratic_weighted_kappa",
    "reliability_bins",
    "robustness",
    "top_label",
]
