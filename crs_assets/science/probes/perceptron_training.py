"""Training of perceptrons that differ in weight decay alone: the same start, the same batches, one pass for all.

The members' hidden layers read the same batch, so together they are one matrix product; what comes after it is
batched over the members, and AdamW acts on each element alone. A member that has stopped is taken out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch  # noqa: TID253  # imported only when a perceptron is fitted
from numpy.typing import NDArray
from torch import Tensor  # noqa: TID253
from torch.nn.functional import log_softmax, softplus  # noqa: TID253

from crs_assets.science.analysis_protocol import ControlProbeProtocol
from crs_assets.science.probes.mlp import PerceptronWeights
from crs_assets.science.probes.standardisation import row_blocks, standardised
from crs_assets.science.validation import FloatArray, IntArray

# Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1.
_FIRST_DECAY, _SECOND_DECAY, _EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Trained:
    """One member as it was after its best epoch.

    Attributes:
        weights: Its parameters.
        epochs: Epochs behind them; 0 where the validation log loss was never finite.
        validation_log_loss: Nats.
    """

    weights: PerceptronWeights
    epochs: int
    validation_log_loss: float


@dataclass(frozen=True)
class Samples:
    """Rows of a feature matrix with their labels, gathered as they are asked for.

    Attributes:
        features: (N, d) as stored.
        labels: (N,) class indices, or (N, L) float32 with NaN where not observed.
        mean: (d,) mean of each feature.
        scale: (d,) divisor of each feature.
        device: Where tensors are put.
    """

    features: NDArray[np.floating]
    labels: NDArray[np.generic]
    mean: FloatArray
    scale: FloatArray
    device: torch.device

    def gather(self, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Standardised features (m, d) float32, and labels (m,) int64 or (m, L) float32."""
        x = standardised(self.features[rows], self.mean, self.scale).astype(np.float32)
        y = self.labels[rows].astype(np.int64 if self.labels.ndim == 1 else np.float32)
        return torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device)


class Members:
    """M perceptrons side by side, with the state of their optimiser.

    Attributes:
        parameters: Hidden weights (M, H, d), hidden biases (M, H), output weights (M, C, H), output biases (M, C).
    """

    def __init__(
        self, start: PerceptronWeights, decays: Sequence[float], learning_rate: float, device: torch.device
    ) -> None:
        """Start every member at the same weights."""
        arrays = [torch.from_numpy(getattr(start, field.name)).to(device) for field in fields(start)]
        self.parameters = [array.expand(len(decays), *array.shape).clone().requires_grad_() for array in arrays]
        self._moments = [(torch.zeros_like(one), torch.zeros_like(one)) for one in self.parameters]
        self._learning_rate = learning_rate
        self._shrink = 1 - learning_rate * torch.tensor(decays, dtype=torch.float64, device=device)
        self._steps = 0

    def logits(self, x: Tensor) -> Tensor:
        """Logits (M, m, C) of a batch (m, d)."""
        weights, biases, output, output_bias = self.parameters
        members, hidden, inputs = weights.shape
        together = torch.addmm(biases.reshape(-1), x, weights.reshape(members * hidden, inputs).T)
        active = together.relu().reshape(len(x), members, hidden).transpose(0, 1)
        return torch.baddbmm(output_bias[:, None], active, output.transpose(1, 2))

    def step(self, x: Tensor, y: Tensor) -> None:
        """One step of AdamW of every member on the mean loss of a batch over its observed cells."""
        losses, observed = cell_losses(self.logits(x), y)
        loss = losses.sum() / observed.sum().clamp(min=1)
        gradients = torch.autograd.grad(loss, self.parameters)
        self._steps += 1
        rate = self._learning_rate / (1 - _FIRST_DECAY**self._steps)
        unbias = (1 - _SECOND_DECAY**self._steps) ** 0.5
        with torch.no_grad():
            for parameter, gradient, (first, second) in zip(self.parameters, gradients, self._moments, strict=True):
                parameter.mul_(self._shrink.to(parameter.dtype).reshape(-1, *[1] * (parameter.ndim - 1)))
                first.lerp_(gradient, 1 - _FIRST_DECAY)
                second.mul_(_SECOND_DECAY).addcmul_(gradient, gradient, value=1 - _SECOND_DECAY)
                parameter.addcdiv_(first, second.sqrt().div_(unbias).add_(_EPSILON), value=-rate)

    def keep(self, which: Sequence[bool]) -> None:
        """Take the other members out."""
        mask = torch.tensor(which, device=self._shrink.device)
        self.parameters = [one.detach()[mask].requires_grad_() for one in self.parameters]
        self._moments = [(first[mask], second[mask]) for first, second in self._moments]
        self._shrink = self._shrink[mask]

    def snapshot(self, position: int) -> PerceptronWeights:
        """A copy of one member's weights."""
        return PerceptronWeights(*(one.detach()[position].cpu().numpy().copy() for one in self.parameters))


def train_side_by_side(
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    train: IntArray,
    validation: IntArray,
    settings: ControlProbeProtocol,
    *,
    start: PerceptronWeights,
    mean: FloatArray,
    scale: FloatArray,
    batches: np.random.Generator,
    device: str,
) -> list[Trained]:
    """Train one perceptron per weight decay, each until its own early stop; arguments as ``fit_perceptron``."""
    samples = Samples(features, labels, mean, scale, torch.device(device))
    members = Members(start, settings.mlp_weight_decays, settings.mlp_learning_rate, samples.device)
    best = [Trained(start, 0, float("inf")) for _ in settings.mlp_weight_decays]
    running = list(range(len(best)))
    for epoch in range(1, settings.mlp_epochs + 1):
        for rows in row_blocks(train[batches.permutation(len(train))], settings.mlp_batch):
            members.step(*samples.gather(rows))
        for position, loss in enumerate(validation_losses(members, samples, validation)):
            if loss < best[running[position]].validation_log_loss:
                best[running[position]] = Trained(members.snapshot(position), epoch, loss)
        going = [epoch - best[member].epochs < settings.mlp_patience for member in running]
        if not any(going):
            break
        if not all(going):
            members.keep(going)
            running = [member for member, goes_on in zip(running, going, strict=True) if goes_on]
    return best


def validation_losses(members: Members, samples: Samples, rows: IntArray) -> list[float]:
    """Log loss of every member, nats: the mean over rows, and over labels of the mean over their observed rows."""
    totals, counts = [], []
    with torch.no_grad():
        for block in row_blocks(rows):
            x, y = samples.gather(block)
            losses, observed = cell_losses(members.logits(x).to(torch.float64), y)
            totals.append(losses.sum(1))
            counts.append(observed.sum(0))
    total, count = torch.stack(totals).sum(0), torch.stack(counts).sum(0)
    per_label = total[:, count > 0] / count[count > 0]
    means: list[float] = per_label.mean(1).tolist()
    return means


def cell_losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood of every cell, nats, and which cells are observed.

    Args:
        logits: (M, m, C).
        labels: (m,) class indices, one cell per row; or (m, L) with 1, 0 and NaN = not observed.

    Returns:
        (M, m, 1) or (M, m, L), 0 where not observed; (m, 1) or (m, L) bool.
    """
    if labels.ndim == 1:
        cells = labels[:, None]
        chosen = log_softmax(logits, dim=-1).gather(2, cells.expand(len(logits), -1, -1))
        return -chosen, torch.ones_like(cells, dtype=torch.bool)
    observed = ~labels.isnan()
    # Minus the log-likelihood of a label y at log-odds z: log(1 + exp(z)) - y z.
    return (softplus(logits) - labels.nan_to_num() * logits) * observed, observed
