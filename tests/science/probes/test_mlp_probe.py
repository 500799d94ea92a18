"""The perceptron against PyTorch's own layers, losses and AdamW, one weight decay at a time."""

import numpy as np
import pytest
import torch
from probe_cases import binary_labels, classes, features
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import nn

from crs_assets.science.analysis_protocol import ControlProbeProtocol
from crs_assets.science.probes import standardisation
from crs_assets.science.probes.mlp import fit_perceptron, initial_weights
from crs_assets.science.probes.perceptron_training import train_side_by_side
from crs_assets.science.seeding import generator

SETTINGS = ControlProbeProtocol(
    knn_neighbours=5,
    mlp_hidden=16,
    mlp_learning_rate=1e-2,
    mlp_batch=32,
    mlp_epochs=30,
    mlp_patience=4,
    mlp_weight_decays=(1e-3, 0.3, 10.0),
)
TRAIN, VALIDATION = np.arange(0, 140), np.arange(140, 220)


def changed(**values):
    return ControlProbeProtocol(**{**SETTINGS.model_dump(), **values})


class CountedOrder:
    """A source of row orders that counts the epochs."""

    def __init__(self, rng):
        self.rng, self.epochs = rng, 0

    def permutation(self, n):
        self.epochs += 1
        return self.rng.permutation(n)


def order():
    return generator("test", "batches")


def fit(x, y, settings=SETTINGS, batches=None, outputs=None):
    mean, scale = standardisation(x, TRAIN, std_floor=0.25, std_zero=1e-8)
    count = outputs or (y.shape[1] if y.ndim == 2 else int(y.max()) + 1)
    return fit_perceptron(
        x,
        y,
        TRAIN,
        VALIDATION,
        settings,
        outputs=count,
        mean=mean,
        scale=scale,
        initial=generator("test", "weights"),
        batches=batches or order(),
    )


def plain(x, y, settings, decay, start, mean, scale):
    """One perceptron by PyTorch's own parts; weights and log loss of its best epoch, and which epoch that was."""
    z = torch.from_numpy(((x - mean) / scale).astype(np.float32))
    truth = torch.from_numpy(y.astype(np.float32 if y.ndim == 2 else np.int64))
    model = nn.Sequential(nn.Linear(x.shape[1], settings.mlp_hidden), nn.ReLU(), nn.Linear(settings.mlp_hidden, 3))
    with torch.no_grad():
        for parameter, array in zip(model.parameters(), vars(start).values(), strict=True):
            parameter.copy_(torch.from_numpy(array))
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.mlp_learning_rate, weight_decay=decay)
    rng, best = order(), (np.inf, 0, None)
    for epoch in range(1, settings.mlp_epochs + 1):
        permuted = TRAIN[rng.permutation(len(TRAIN))]
        for at in range(0, len(TRAIN), settings.mlp_batch):
            rows = permuted[at : at + settings.mlp_batch]
            optimiser.zero_grad()
            mean_loss(model(z[rows]), truth[rows]).backward()
            optimiser.step()
        with torch.no_grad():
            logits = model(z[VALIDATION])
            columns = range(3) if y.ndim == 2 else [slice(None)]
            losses = [mean_loss(logits[:, c], truth[VALIDATION][:, c]) for c in columns] if y.ndim == 2 else None
            loss = float(torch.stack(losses).mean() if losses else mean_loss(logits, truth[VALIDATION]))
        if loss < best[0]:
            best = loss, epoch, [one.detach().numpy().copy() for one in model.parameters()]
        if epoch - best[1] >= settings.mlp_patience:
            break
    return best


def mean_loss(logits, truth):
    if truth.dtype == torch.int64:
        return nn.functional.cross_entropy(logits, truth)
    seen = ~truth.isnan()
    return nn.functional.binary_cross_entropy_with_logits(logits[seen], truth[seen])


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_side_by_side_training_is_that_of_each_perceptron_alone(kind):
    x = features(220, 7)
    y = classes(x, 3) if kind == "classes" else binary_labels(x, labels=3).astype(np.float32)
    mean, scale = standardisation(x, TRAIN, std_floor=0.25, std_zero=1e-8)
    start = initial_weights(7, 16, 3, generator("test", "weights"))
    trained = train_side_by_side(
        x, y, TRAIN, VALIDATION, SETTINGS, start=start, mean=mean, scale=scale, batches=order(), device="cpu"
    )
    for decay, mine in zip(SETTINGS.mlp_weight_decays, trained, strict=True):
        loss, epochs, weights = plain(x, y, SETTINGS, decay, start, mean, scale)
        assert mine.epochs == epochs
        assert mine.validation_log_loss == pytest.approx(loss, abs=1e-5)
        for array, expected in zip(vars(mine.weights).values(), weights, strict=True):
            np.testing.assert_allclose(array, expected, atol=1e-5)
    assert len({one.epochs for one in trained}) > 1  # else no member was ever taken out before the others
    losses = [one.validation_log_loss for one in trained]
    probe = fit(x, y)
    assert probe.weight_decay == SETTINGS.mlp_weight_decays[int(np.argmin(losses))]
    assert (probe.validation_log_loss, probe.at_edge) == (min(losses), probe.weight_decay != 0.3)


def test_logits_are_those_of_the_layers():
    x = features(220, 7)
    probe = fit(x, classes(x, 3))
    weights = probe.weights
    z = (x.astype(np.float64) - probe.mean) / probe.scale
    hidden = np.maximum(z @ weights.hidden.T + weights.hidden_bias, 0)
    np.testing.assert_allclose(probe.logits(x), hidden @ weights.output.T + weights.output_bias, rtol=1e-5, atol=1e-5)
    assert probe.logits(x[:0]).shape == (0, 3)


def test_bits_are_the_same_again_and_with_another_number_of_threads():
    x = features(220, 40)
    y = binary_labels(x, labels=3).astype(np.float32)
    before = torch.get_num_threads()
    one = fit(x, y)
    torch.set_num_threads(2)
    try:
        other = fit(x, y)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert one.weight_decay == other.weight_decay
    for mine, again in zip(vars(one.weights).values(), vars(other.weights).values(), strict=True):
        np.testing.assert_array_equal(mine, again)


def test_what_no_line_separates_is_learned():
    stream = np.random.default_rng(0)
    x = stream.uniform(-1, 1, (220, 2)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    probe = fit(x, y, changed(mlp_epochs=200, mlp_patience=20))
    logits = probe.logits(x[VALIDATION])
    line = LogisticRegression().fit(x[TRAIN], y[TRAIN]).decision_function(x[VALIDATION])
    assert roc_auc_score(y[VALIDATION], logits[:, 1] - logits[:, 0]) > 0.97
    assert roc_auc_score(y[VALIDATION], line) < 0.65


def test_training_stops_after_as_many_epochs_without_a_better_one_as_the_protocol_says():
    x = features(220, 7)
    noise = np.random.default_rng(5).integers(0, 2, 220)
    counted = CountedOrder(order())
    probe = fit(x, noise, changed(mlp_epochs=100, mlp_patience=3, mlp_weight_decays=(1e-3,)), batches=counted)
    assert counted.epochs == probe.epochs + 3
    assert counted.epochs < 100
    counted = CountedOrder(order())
    fit(x, noise, changed(mlp_epochs=2, mlp_patience=3), batches=counted)
    assert counted.epochs == 2


def test_of_equal_weight_decays_the_larger_is_chosen():
    x = features(220, 7)
    # At this rate 1 - rate * decay is 1 in float32, so that no decay has an effect.
    probe = fit(x, classes(x, 3), changed(mlp_learning_rate=1e-9, mlp_weight_decays=(1e-2, 1.0, 1e-1)))
    assert (probe.weight_decay, probe.at_edge) == (1.0, True)


def test_cells_that_are_not_observed_are_not_looked_at():
    x = features(220, 7)
    y = binary_labels(x, labels=3).astype(np.float32)
    with_empty = np.column_stack([y, np.full(220, np.nan, np.float32)])
    probe = fit(x, with_empty)
    assert np.isfinite(probe.validation_log_loss)
    assert np.isfinite(probe.logits(x)).all()


def test_what_cannot_be_fitted_is_refused():
    x = features(220, 7)
    blank = np.full((220, 3), np.nan, np.float32)
    with pytest.raises(ValueError, match=r"train: no label is observed on any of 140 rows.*; validation: no label"):
        fit(x, blank)
    with pytest.raises(ValueError, match="no perceptron had a finite validation log loss in 30 epochs"):
        fit(x, classes(x, 3), changed(mlp_learning_rate=1e30))
