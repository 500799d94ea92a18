"""Control probe: a perceptron with one hidden layer, trained by AdamW and stopped early on validation log loss."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.analysis_protocol import ControlProbeProtocol
from crs_assets.science.probes.standardisation import non_finite_rows, row_blocks, standardised
from crs_assets.science.validation import FloatArray, IntArray, refuse

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class PerceptronWeights:
    """Parameters of one perceptron on standardised features.

    Attributes:
        hidden: (H, d) float32 weights of the hidden layer.
        hidden_bias: (H,) float32.
        output: (C, H) float32 weights of the output layer.
        output_bias: (C,) float32.
    """

    hidden: Float32
    hidden_bias: Float32
    output: Float32
    output_bias: Float32


@dataclass(frozen=True)
class Perceptron:
    """A fitted perceptron: logits = W relu(V z + a) + b of the standardised features z.

    Attributes:
        weights: Those of the epoch with the least validation log loss.
        mean: (d,) float64 mean of each feature.
        scale: (d,) float64 divisor of each feature.
        weight_decay: The chosen one.
        at_edge: Whether that is the smallest or the largest on offer.
        epochs: Epochs that the kept weights were trained for.
        validation_log_loss: Nats, of the kept weights; mean over labels where there are several.
    """

    weights: PerceptronWeights
    mean: FloatArray
    scale: FloatArray
    weight_decay: float
    at_edge: bool
    epochs: int
    validation_log_loss: float

    def logits(self, features: NDArray[np.floating]) -> Float32:
        """Logits, summed in float64.

        Args:
            features: (n, d) as stored, not standardised.

        Returns:
            (n, C) float32.
        """
        layers = self.weights
        inner, outer = layers.hidden.astype(np.float64), layers.output.astype(np.float64)
        blocks = [
            np.maximum(standardised(features[rows], self.mean, self.scale) @ inner.T + layers.hidden_bias, 0) @ outer.T
            + layers.output_bias
            for rows in row_blocks(np.arange(len(features)))
        ]
        return np.concatenate([*blocks, np.empty((0, len(outer)))]).astype(np.float32)


def fit_perceptron(
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    train: IntArray,
    validation: IntArray,
    settings: ControlProbeProtocol,
    *,
    outputs: int,
    mean: FloatArray,
    scale: FloatArray,
    initial: np.random.Generator,
    batches: np.random.Generator,
    device: str = "cpu",
) -> Perceptron:
    """Train one perceptron per weight decay on the same batches, and keep the one of least validation log loss.

    Minimises the softmax cross-entropy of class indices, or the sigmoid cross-entropy averaged over the observed cells
    of a batch, by AdamW [1]_: decay applies to every parameter, and all of them start uniform within 1 / sqrt(inputs
    of their layer). Each perceptron stops after ``mlp_patience`` epochs without a smaller validation log loss, and
    keeps its weights of the smallest. Of equal weight decays the larger wins.

    On a CPU everything runs on one thread, so that bits do not depend on how many there are.

    Args:
        features: (N, d) float32 or float16; may be memory-mapped. Gathered and standardised a batch at a time.
        labels: (N,) class indices from 0, or (N, L) with 1, 0 and NaN = not observed.
        train: Row indices to fit on.
        validation: Row indices to stop and choose on.
        settings: Width, learning rate, batch, epochs, patience, weight decays.
        outputs: Number of classes or labels, C.
        mean: (d,) subtracted from each feature. See ``standardisation``.
        scale: (d,) divisors; ``inf`` sets a feature to 0.
        initial: Draws the initial weights.
        batches: Draws the order of the rows, anew for each epoch.
        device: Where to compute: ``cpu``, ``cuda`` or ``cuda:0``.

    Raises:
        ValueError: If there is nothing to fit or to validate on, a feature is not finite, or no perceptron ever had a
            finite validation log loss.

    References:
        .. [1] Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
    """
    from crs_assets.science.probes.perceptron_training import train_side_by_side

    rows = np.asarray(train, dtype=np.int64), np.asarray(validation, dtype=np.int64)
    refuse(_problems(features, labels, *rows))
    start = initial_weights(features.shape[1], settings.mlp_hidden, outputs, initial)
    with _one_thread():
        trained = train_side_by_side(
            features, labels, *rows, settings, start=start, mean=mean, scale=scale, batches=batches, device=device
        )
    losses = [one.validation_log_loss for one in trained]
    refuse(
        []
        if np.isfinite(losses).any()
        else [
            f"no perceptron had a finite validation log loss in {settings.mlp_epochs} epochs; lower the learning rate"
        ]
    )
    decays = settings.mlp_weight_decays
    chosen = min(range(len(decays)), key=lambda position: (losses[position], -decays[position]))
    return Perceptron(
        weights=trained[chosen].weights,
        mean=mean,
        scale=scale,
        weight_decay=decays[chosen],
        at_edge=decays[chosen] in (min(decays), max(decays)),
        epochs=trained[chosen].epochs,
        validation_log_loss=losses[chosen],
    )


def initial_weights(inputs: int, hidden: int, outputs: int, rng: np.random.Generator) -> PerceptronWeights:
    """Weights and biases, uniform within 1 / sqrt(inputs of the layer) on either side of 0 [1]_.

    Args:
        inputs: Number of features, d.
        hidden: Width of the hidden layer, H.
        outputs: Number of classes or labels, C.
        rng: Source of the draws: hidden weights, hidden biases, output weights, output biases.

    References:
        .. [1] LeCun, Bottou, Orr and Mueller, "Efficient BackProp", in Neural Networks: Tricks of the Trade, 1998; the
           bound is the default of PyTorch's linear layer.
    """

    def draw(*shape: int, fan_in: int) -> Float32:
        uniform = rng.random(shape, dtype=np.float32)
        return (2 * uniform - 1) / np.float32(np.sqrt(fan_in))

    return PerceptronWeights(
        hidden=draw(hidden, inputs, fan_in=inputs),
        hidden_bias=draw(hidden, fan_in=inputs),
        output=draw(outputs, hidden, fan_in=hidden),
        output_bias=draw(outputs, fan_in=hidden),
    )


def _problems(
    features: NDArray[np.floating], labels: NDArray[np.generic], train: IntArray, validation: IntArray
) -> Sequence[str]:
    problems = []
    for name, rows in (("train", train), ("validation", validation)):
        if not len(rows):
            problems.append(f"{name}: no row, a perceptron needs at least one; is the split empty?")
        elif labels.ndim == 2 and np.isnan(labels[rows].astype(np.float64)).all():
            problems.append(f"{name}: no label is observed on any of {len(rows)} rows; is the label policy right?")
    return [*problems, *non_finite_rows(features, np.concatenate([train, validation]))]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Single-threaded tensors within the block; restores the setting."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
