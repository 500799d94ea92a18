"""Probes on frozen features. Importing this loads no solver: torch and scikit-learn come in when a probe is fitted."""

from crs_assets.science.probes.linear import fit_linear_path
from crs_assets.science.probes.path import LinearPath, predict_logits
from crs_assets.science.probes.selection import LambdaChoice, select_lambda, validation_log_loss
from crs_assets.science.probes.standardisation import standardisation

__all__ = [
    "LambdaChoice",
    "LinearPath",
    "fit_linear_path",
    "predict_logits",
    "select_lambda",
    "standardisation",
    "validation_log_loss",
]
