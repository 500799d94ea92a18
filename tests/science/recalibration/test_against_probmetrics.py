"""Every map against the same method of probmetrics, where that and pytorch-minimize are installed.

Its vector and matrix scaling are unregularised; a matrix on log-probabilities is Dirichlet calibration.
"""

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, softmax

from crs_assets.science.recalibration import fit_dirichlet, fit_isotonic, fit_temperature, fit_vector

ABSENT = "probmetrics or pytorch-minimize is not installed; pip install -e '.[reference]'"
pytest.importorskip("torchmin", reason=ABSENT)
calibrators = pytest.importorskip("probmetrics.calibrators", reason=ABSENT)
distributions = pytest.importorskip("probmetrics.distributions", reason=ABSENT)


@pytest.fixture(scope="module")
def drawn():
    """Labels that follow a linear map of the logits which mixes two classes; then rows that no map has seen."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(1200, 3)) * 2
    weight = np.array([[0.7, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.3]])
    chances = softmax(log_softmax(logits, axis=1) @ weight.T + [0.5, 0.0, -0.5], axis=1)
    labels = (rng.random((1200, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    return logits[:900], labels[:900], logits[900:]


def fitted(calibrator, logits, labels, unseen):
    """Their probabilities of unseen rows, fitted on logits in float64."""
    calibrator.fit_torch(distributions.CategoricalLogits(torch.tensor(logits)), torch.tensor(labels))
    found = calibrator.predict_proba_torch(distributions.CategoricalLogits(torch.tensor(unseen)))
    return found.get_probs().detach().numpy()


def test_temperature(drawn):
    logits, labels, unseen = drawn
    theirs = fitted(calibrators.get_calibrator("temp-scaling"), logits, labels, unseen)
    np.testing.assert_allclose(fit_temperature(logits, labels).transform(unseen), theirs, atol=1e-6)


def test_isotonic(drawn):
    logits, labels, unseen = drawn
    theirs = calibrators.get_calibrator("isotonic").fit(softmax(logits, axis=1), labels)
    ours = fit_isotonic(logits, labels).transform(unseen)
    np.testing.assert_allclose(ours, theirs.predict_proba(softmax(unseen, axis=1)), atol=1e-9)


@pytest.mark.filterwarnings("ignore:'penalty' was deprecated:FutureWarning")
def test_platt(drawn):
    logits, labels, unseen = drawn
    positive, both = (labels == 0).astype(np.int64), expit(logits[:, 0])
    theirs = calibrators.get_calibrator("affine-scaling").fit(np.stack([1 - both, both], axis=1), positive)
    stated = expit(unseen[:, 0])
    expected = theirs.predict_proba(np.stack([1 - stated, stated], axis=1))[:, 1]
    # Theirs stops at a gradient of 1e-4.
    np.testing.assert_allclose(fit_vector(logits[:, 0], positive).transform(unseen[:, 0]), expected, atol=5e-4)


def test_vector(drawn):
    logits, labels, unseen = drawn
    theirs = fitted(calibrators.VectorScalingCalibrator(), logits, labels, unseen)
    np.testing.assert_allclose(fit_vector(logits, labels).transform(unseen), theirs, atol=2e-3)


def test_dirichlet(drawn):
    logits, labels, unseen = (log_softmax(each, axis=1) if each.ndim == 2 else each for each in drawn)
    theirs = fitted(calibrators.MatrixScalingCalibrator(), logits, labels, unseen)
    ours = fit_dirichlet(logits, labels, lambdas=[1e-9]).transform(unseen)
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
