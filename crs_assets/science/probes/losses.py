"""The two likelihoods of a linear probe: independent sigmoids over observed labels, and one softmax.

Both are written for B problems at once over the same rows. A problem j has K outputs (K = 1 for a sigmoid), and
everything that depends on row, problem and output has shape (m, B, K) for a block of m rows.

A sigmoid is written for the probability that a row's label is missed, sigmoid(-s z) with s = +1 or -1: it keeps its
digits where the fit is nearly perfect, as p - y would not.

Every row carries the weight ``1 / n_j`` of the mean over the problem's observed rows, so sums over rows are means.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch  # noqa: TID253  # imported only when a probe is fitted
from torch import Tensor  # noqa: TID253
from torch.nn.functional import one_hot, softplus  # noqa: TID253


@dataclass(frozen=True)
class Problems:
    """Independent fits on the rows of one sample set: problem j is one target at one penalty.

    Attributes:
        target: (B,) int64, column of the targets (always 0 for a softmax).
        penalty: (B,) float64, lambda.
    """

    target: Tensor
    penalty: Tensor

    def __len__(self) -> int:
        return len(self.target)

    def select(self, which: Tensor) -> "Problems":
        """The problems of a mask or of indices."""
        return replace(self, target=self.target[which], penalty=self.penalty[which])


class Loss(ABC):
    """Mean negative log-likelihood as a function of the logits.

    Attributes:
        outputs: K, logits per problem.
        initial: (T, K) float64, the intercepts at which zero weights are best, for each of T targets.
        curvature: (T, K, K) float64, mean over rows of the second derivative of the loss at those intercepts.
    """

    outputs: int
    initial: Tensor
    curvature: Tensor

    @abstractmethod
    def targets(self, rows: slice, problems: Problems, dtype: torch.dtype) -> Tensor:
        """What the methods below need of the labels of a block of rows."""

    @abstractmethod
    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(B,) float64: contribution of a block of rows to the loss."""

    @abstractmethod
    def probability(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(m, B, K) predicted probabilities; of a sigmoid, the probability of the label that the row does not have."""

    @abstractmethod
    def residual(self, probability: Tensor, targets: Tensor) -> Tensor:
        """(m, B, K) derivative of the loss by the logits."""

    @abstractmethod
    def bend(self, probability: Tensor, targets: Tensor) -> Tensor:
        """(m, B, K) what ``diagonal`` and ``curve`` need of the second derivative, computed once per point."""

    @abstractmethod
    def diagonal(self, bend: Tensor) -> Tensor:
        """(m, B, K) second derivative of the loss by each logit: weighted p (1 - p), at least 0."""

    @abstractmethod
    def curve(self, direction: Tensor, bend: Tensor) -> Tensor:
        """(m, B, K) second derivative of the loss by the logits, times a direction in the logits."""

    @abstractmethod
    def mean_block(self, bend: Tensor) -> Tensor:
        """(B, K, K) second derivative of the loss by the logits, summed over rows."""

    def intercept_step(self, slope: Tensor, block: Tensor) -> Tensor:
        """(B, K) Newton step of the intercepts at fixed weights, to be subtracted.

        Args:
            slope: (B, K) derivative of the loss by the logits, summed over rows.
            block: (B, K, K) second derivative, summed over rows.
        """
        blind = torch.full_like(block, 1 / self.outputs) if self.outputs > 1 else torch.zeros_like(block)
        return self.project(torch.linalg.lstsq(block + blind, slope[..., None]).solution[..., 0])

    def project(self, parameters: Tensor) -> Tensor:
        """Orthogonal projection of (..., B, K) onto the subspace in which the minimiser lies."""
        return parameters


class SigmoidLoss(Loss):
    """Each target its own logistic regression over the rows where it is observed."""

    outputs = 1

    def __init__(self, labels: Tensor) -> None:
        """Take (n, T) float labels with 1, 0 and NaN = not observed, each column with both values."""
        observed = ~torch.isnan(labels)
        counts = observed.sum(0, dtype=torch.float64)
        rate = (labels == 1).sum(0, dtype=torch.float64) / counts
        sign = 2 * labels.nan_to_num() - 1
        weight = torch.where(observed, sign / counts, 0).to(torch.float64)
        self._signed_weight = {dtype: weight.to(dtype) for dtype in (torch.float32, torch.float64)}
        self.initial = torch.logit(rate)[:, None]
        self.curvature = (rate * (1 - rate))[:, None, None]

    def targets(self, rows: slice, problems: Problems, dtype: torch.dtype) -> Tensor:
        """(m, B) weight of the row, with the sign of its label; 0 where not observed."""
        return self._signed_weight[dtype][rows].index_select(1, problems.target)

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return (softplus(-logits[..., 0] * targets.sign()) * targets.abs()).sum(0, dtype=torch.float64)

    def probability(self, logits: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return torch.sigmoid(-logits * targets.sign()[..., None])

    def residual(self, probability: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return -probability * targets[..., None]

    def bend(self, probability: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return probability * (1 - probability) * targets.abs()[..., None]

    def diagonal(self, bend: Tensor) -> Tensor:  # noqa: D102
        return bend

    def curve(self, direction: Tensor, bend: Tensor) -> Tensor:  # noqa: D102
        return direction * bend

    def mean_block(self, bend: Tensor) -> Tensor:  # noqa: D102
        return bend.sum(0)[..., None]


class SoftmaxLoss(Loss):
    """One softmax over all classes."""

    def __init__(self, labels: Tensor, classes: int) -> None:
        """Take (n,) int64 class indices, each class with at least one row."""
        self.outputs = classes
        self._rows = len(labels)
        self._one_hot = one_hot(labels, classes).to(torch.float64)
        rate = self._one_hot.mean(0)
        self.initial = self.project(rate.log()[None])
        self.curvature = (torch.diag(rate) - torch.outer(rate, rate))[None]

    def targets(self, rows: slice, problems: Problems, dtype: torch.dtype) -> Tensor:  # noqa: ARG002
        """(m, K) one-hot classes, the same for every problem."""
        return self._one_hot[rows].to(dtype)

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        of_label = torch.einsum("mbk,mk->b", logits, targets)
        return (torch.logsumexp(logits, 2).sum(0, dtype=torch.float64) - of_label) / self._rows

    def probability(self, logits: Tensor, targets: Tensor) -> Tensor:  # noqa: D102, ARG002
        return torch.softmax(logits, 2)

    def residual(self, probability: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        of_label = targets[:, None]
        others = probability * (1 - of_label)  # p - 1 of the label would lose the digits of a small 1 - p
        return (others - of_label * others.sum(2, keepdim=True)) / self._rows

    def bend(self, probability: Tensor, targets: Tensor) -> Tensor:  # noqa: D102, ARG002
        return probability

    def diagonal(self, bend: Tensor) -> Tensor:  # noqa: D102
        return bend * (1 - bend) / self._rows

    def curve(self, direction: Tensor, bend: Tensor) -> Tensor:  # noqa: D102
        weighted = bend * direction
        return (weighted - bend * weighted.sum(2, keepdim=True)) / self._rows

    def mean_block(self, bend: Tensor) -> Tensor:  # noqa: D102
        return (torch.diag_embed(bend.sum(0)) - torch.einsum("mbk,mbl->bkl", bend, bend)) / self._rows

    def project(self, parameters: Tensor) -> Tensor:
        """Remove the mean over the classes.

        Adding one vector to every class changes no probability, so the penalty leaves the mean of the weights at 0;
        the mean of the intercepts is free, and 0 is our choice of it.
        """
        return parameters - parameters.mean(-1, keepdim=True)
