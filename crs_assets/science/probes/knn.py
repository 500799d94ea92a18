"""Control probe: the k nearest training images by Euclidean distance on standardised features, one vote each."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.probes.standardisation import non_finite_rows, row_blocks, standardised
from crs_assets.science.validation import BoolArray, FloatArray, IntArray, positive_int, refuse

Float32 = NDArray[np.float32]

SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)
"""What a logarithm takes for no vote: the epsilon at which log losses of probabilities are clipped, 36 nats."""

_CELLS_AT_ONCE = 8_000_000
"""Distances held at once: 32 MB per array."""
_QUERIES_AT_ONCE = 2048
_PAIRS_AT_ONCE = 4096
"""Pairs of images whose distance is computed exactly at once."""
_DEEPER = 4
"""How many times further the search goes where a label is not observed on enough of the nearest."""


@dataclass(frozen=True)
class NearestNeighbours:
    """A k-nearest-neighbour classifier [1]_ over the rows it was given.

    Attributes:
        features: (N, d) as stored; may be memory-mapped.
        rows: (n,) rows that vote, ascending.
        positive: (n, C) whether a row is of the class, or has the label.
        observed: (n, C) whether the label is known; True throughout for classes.
        multilabel: Whether columns are labels of their own, rather than classes that share the votes.
        neighbours: k.
        mean: (d,) float64 mean of each feature.
        scale: (d,) float64 divisor of each feature.

    References:
        .. [1] Cover and Hart, "Nearest neighbor pattern classification", IEEE Transactions on Information Theory 13,
           1967.
    """

    features: NDArray[np.floating]
    rows: IntArray
    positive: BoolArray
    observed: BoolArray
    multilabel: bool
    neighbours: int
    mean: FloatArray
    scale: FloatArray

    @property
    def fitted(self) -> BoolArray:
        """(C,) whether k rows can vote on a class or label."""
        enough: BoolArray = self.observed.sum(axis=0) >= self.neighbours
        return enough

    def probabilities(self, features: NDArray[np.floating]) -> FloatArray:
        """Share of the k nearest rows that are of the class; of a label, of the k nearest on which it is observed.

        Of rows at equal distance those of lower index are nearer. Distances are compared in float64.

        Args:
            features: (m, d) as stored, not standardised.

        Returns:
            (m, C) float64, multiples of 1 / k in [0, 1]; NaN for a label that fewer than k rows can vote on.

        Raises:
            ValueError: If a feature is not finite.
        """
        queries = np.arange(len(features))
        refuse(non_finite_rows(features, queries))
        size = max(1, min(_CELLS_AT_ONCE // len(self.rows), _QUERIES_AT_ONCE))
        depth = self.neighbours if self.observed.all() else _DEEPER * self.neighbours
        votes = [
            self._votes(standardised(features[block], self.mean, self.scale), depth)
            for block in row_blocks(queries, size)
        ]
        return np.where(self.fitted, np.concatenate(votes) / self.neighbours, np.nan)

    def logits(self, features: NDArray[np.floating]) -> Float32:
        """Logits whose softmax, or sigmoid per label, are the probabilities.

        A probability of 0 counts as float64's epsilon, one of 1 as 1 minus that: a certain and wrong vote costs 36
        nats, as it does in the log losses of probabilities. Votes that are equal give logits that are equal.

        Args:
            features: (m, d) as stored, not standardised.

        Returns:
            (m, C) float32: log p of a class, log p - log(1 - p) of a label; NaN where p is.
        """
        share = self.probabilities(features)
        logits = np.log(np.maximum(share, SMALLEST_PROBABILITY))
        if self.multilabel:
            logits -= np.log(np.maximum(1 - share, SMALLEST_PROBABILITY))
        return logits.astype(np.float32)

    @cached_property
    def _standardised(self) -> Float32:
        """(n, d) voting rows in float32: they find the candidates among which float64 decides."""
        blocks = [standardised(self.features[rows], self.mean, self.scale) for rows in row_blocks(self.rows)]
        return np.concatenate([block.astype(np.float32) for block in blocks])

    @cached_property
    def _norms(self) -> Float32:
        """(n,) Euclidean norm of each voting row."""
        norms: Float32 = np.sqrt(np.square(self._standardised, dtype=np.float64).sum(axis=1)).astype(np.float32)
        return norms

    def _votes(self, queries: FloatArray, depth: int) -> FloatArray:
        """Positive votes (m, C) of the first k observed rows, looking at the ``depth`` nearest or further."""
        depth = min(depth, len(self.rows))
        nearest = self._nearest(queries, depth)
        observed = self.observed[nearest]
        voting = observed & (np.cumsum(observed, axis=1) <= self.neighbours)
        votes: FloatArray = (voting & self.positive[nearest]).sum(axis=1).astype(np.float64)
        short = (voting.sum(axis=1) < self.neighbours)[:, self.fitted].any(axis=1)
        if depth < len(self.rows) and short.any():
            votes[short] = self._votes(queries[short], _DEEPER * depth)
        return votes

    def _nearest(self, queries: FloatArray, depth: int) -> IntArray:
        """Positions (m, depth) of the nearest voting rows, by distance and then by index."""
        estimate, error = self._estimates(queries)
        # The depth-th nearest is at most this far, so what is certainly farther is out.
        limit = np.partition(estimate + error, depth - 1, axis=1)[:, depth - 1 : depth]
        query, candidate = np.nonzero(estimate - error <= limit)
        order = np.lexsort((candidate, self._squared_distances(queries, query, candidate), query))
        first = np.searchsorted(query, np.arange(len(queries)))
        nearest: IntArray = candidate[order][first[:, None] + np.arange(depth)]
        return nearest

    def _estimates(self, queries: FloatArray) -> tuple[Float32, Float32]:
        """Squared distances (m, n) less the query's own square, in float32, and how far off they can be.

        The inner product of two vectors of d numbers rounds by at most about d u |a| |b|, whatever the order of
        summation (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1); u is half of epsilon,
        and the rest of the bound covers the rounding of the vectors themselves and of the sums.
        """
        rounded = queries.astype(np.float32)
        norms = np.linalg.norm(rounded, axis=1).astype(np.float32)[:, None]
        square, product = self._norms**2, rounded @ self._standardised.T
        relative = np.float32((queries.shape[1] + 8) * np.finfo(np.float32).eps)
        return square - 2 * product, relative * (2 * norms * self._norms + square)

    def _squared_distances(self, queries: FloatArray, query: IntArray, candidate: IntArray) -> FloatArray:
        """Squared distances (pairs,) in float64; those of equal rows are equal to the bit."""
        squares = [
            np.square(
                queries[query[pairs]] - standardised(self.features[self.rows[candidate[pairs]]], self.mean, self.scale)
            ).sum(axis=1)
            for pairs in row_blocks(np.arange(len(query)), _PAIRS_AT_ONCE)
        ]
        return np.concatenate(squares)


def fit_neighbours(
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    rows: IntArray,
    *,
    outputs: int,
    neighbours: int,
    mean: FloatArray,
    scale: FloatArray,
) -> NearestNeighbours:
    """Take the rows that vote.

    Args:
        features: (N, d) float32 or float16; may be memory-mapped.
        labels: (N,) class indices from 0, or (N, L) with 1, 0 and NaN = not observed.
        rows: Row indices that vote.
        outputs: Number of classes or labels, C.
        neighbours: k.
        mean: (d,) subtracted from each feature. See ``standardisation``.
        scale: (d,) divisors; ``inf`` sets a feature to 0.

    Raises:
        ValueError: If there is no row, a feature is not finite, or ``neighbours`` is below 1.
    """
    voting = np.sort(np.asarray(rows, dtype=np.int64))
    refuse([] if len(voting) else ["nearest neighbours need at least one row, got none; is the train split empty?"])
    refuse(non_finite_rows(features, voting))
    multilabel = labels.ndim == 2
    of_rows = labels[voting]
    positive = of_rows == 1 if multilabel else of_rows[:, None] == np.arange(outputs)
    observed = np.isfinite(of_rows.astype(np.float64)) if multilabel else np.ones(positive.shape, dtype=np.bool_)
    return NearestNeighbours(
        features=features,
        rows=voting,
        positive=positive,
        observed=observed,
        multilabel=multilabel,
        neighbours=positive_int(neighbours, name="neighbours"),
        mean=mean,
        scale=scale,
    )
