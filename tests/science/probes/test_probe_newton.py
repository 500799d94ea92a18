"""Parts of the second-order phase: factors are inverses, kept for the right targets, and intercepts settle."""

import numpy as np
import pytest
import torch
from probe_cases import binary_labels, classes, features

from crs_assets.science.probes.design import build_design
from crs_assets.science.probes.losses import Problems, SigmoidLoss, SoftmaxLoss
from crs_assets.science.probes.newton import Factors, settle_intercepts
from crs_assets.science.probes.objective import Objective
from crs_assets.science.probes.preconditioning import (
    DiagonalPreconditioner,
    FactoredPreconditioner,
    MixedPreconditioner,
)

CPU = torch.device("cpu")


@pytest.fixture
def sigmoids():
    """Three labels at two penalties, and parameters somewhere."""
    x = features(120, 9)
    loss = SigmoidLoss(torch.from_numpy(binary_labels(x, labels=3)))
    objective = Objective(build_design(x, np.arange(120), x.std(0).astype(np.float64), CPU), loss)
    problems = Problems(torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([1e-3] * 3 + [1e-1] * 3, dtype=torch.float64))
    return objective, problems, somewhere(objective, 6, 1)


def somewhere(objective, problems, outputs, seed=0):
    stream = torch.Generator().manual_seed(seed)
    shape = (objective.design.rank + 1, problems, outputs)
    return 0.3 * torch.randn(shape, generator=stream, dtype=torch.float64)


def bend_at(objective, problems, parameters):
    return objective.bend(objective.logits(parameters), problems)


def undone(preconditioner, objective, bend, problems, vector):
    """Largest relative error of preconditioner(Hessian(vector)) against the vector, problem by problem."""
    found = preconditioner.apply(objective.hessian_times(vector, bend, problems))
    return ((found - vector).abs().amax((0, 2)) / vector.abs().amax((0, 2))).numpy()


def test_a_factored_sigmoid_is_the_inverse_whatever_is_selected_or_joined(sigmoids):
    objective, problems, parameters = sigmoids
    bend = bend_at(objective, problems, parameters)
    vector = somewhere(objective, 6, 1, seed=1).float()
    whole = FactoredPreconditioner(objective, bend, problems)
    assert undone(whole, objective, bend, problems, vector).max() < 1e-3
    order = torch.tensor([4, 0, 5])
    part = whole.select(order)
    assert undone(part, objective, bend[:, order], problems.select(order), vector[:, order]).max() < 1e-3
    both = whole.select(torch.tensor([1, 2])).joined(part)
    order = torch.tensor([1, 2, 4, 0, 5])
    assert undone(both, objective, bend[:, order], problems.select(order), vector[:, order]).max() < 1e-3


def test_a_system_computed_by_panels_is_the_same(sigmoids, monkeypatch):
    from crs_assets.science.probes import preconditioning

    objective, problems, parameters = sigmoids
    bend = bend_at(objective, problems, parameters)
    monkeypatch.setattr(preconditioning, "_PANEL", 4)
    paneled = FactoredPreconditioner(objective, bend, problems)
    assert undone(paneled, objective, bend, problems, somewhere(objective, 6, 1, seed=1).float()).max() < 1e-3


def test_a_streamed_system_is_the_same(monkeypatch):
    from crs_assets.science.probes import design

    monkeypatch.setattr(design, "_RESIDENT_CELLS", 0)
    x = features(120, 9)
    objective = Objective(
        build_design(x, np.arange(120), x.std(0).astype(np.float64), CPU),
        SigmoidLoss(torch.from_numpy(binary_labels(x, labels=1))),
    )
    assert objective.design.resident is None
    problems = Problems(torch.tensor([0]), torch.tensor([1e-3], dtype=torch.float64))
    bend = bend_at(objective, problems, somewhere(objective, 1, 1))
    factored = FactoredPreconditioner(objective, bend, problems)
    assert undone(factored, objective, bend, problems, somewhere(objective, 1, 1, seed=1).float()).max() < 1e-3


def test_mixed_problems_get_their_own_factor_and_the_others_the_diagonal(sigmoids):
    objective, problems, parameters = sigmoids
    bend = bend_at(objective, problems, parameters)
    vector = somewhere(objective, 6, 1, seed=1).float()
    diagonal = DiagonalPreconditioner.build(objective, bend, problems)
    covered = torch.tensor([1, 3])
    factored = FactoredPreconditioner(objective, bend[:, covered], problems.select(covered))
    mixed = MixedPreconditioner(diagonal, factored, covered)
    errors = undone(mixed, objective, bend, problems, vector)
    assert errors[[1, 3]].max() < 1e-3
    assert errors[[0, 2, 4, 5]].min() > 1e-2
    order = torch.tensor([5, 3, 0])
    errors = undone(mixed.select(order), objective, bend[:, order], problems.select(order), vector[:, order])
    assert errors[1] < 1e-3
    assert errors[[0, 2]].min() > 1e-2
    others = torch.tensor([0, 2])
    assert torch.equal(mixed.select(others).apply(vector[:, others]), diagonal.select(others).apply(vector[:, others]))


def test_factors_are_kept_by_target_and_replaced_by_newer_ones(sigmoids):
    objective, problems, parameters = sigmoids
    bend = bend_at(objective, problems, parameters)
    vector = somewhere(objective, 6, 1, seed=1).float()

    def factored(*which):
        chosen = torch.tensor(which)
        return FactoredPreconditioner(objective, bend[:, chosen], problems.select(chosen))

    kept = Factors(None, torch.tensor([], dtype=torch.int64))
    kept = kept.renewed(factored(3, 4, 5), torch.tensor([0, 1, 2]), room=3)
    kept = kept.renewed(factored(1), torch.tensor([1]), room=3)
    targets = torch.tensor([2, 1, 0])
    diagonal = DiagonalPreconditioner.build(objective, bend[:, [5, 1, 3]], problems.select(torch.tensor([5, 1, 3])))
    order = torch.tensor([5, 1, 3])
    errors = undone(kept.of(targets, diagonal), objective, bend[:, order], problems.select(order), vector[:, order])
    assert errors.max() < 1e-3
    tight = kept.renewed(factored(0), torch.tensor([0]), room=1)
    assert tight.targets.tolist() == [0]


@pytest.mark.parametrize("kind", ["sigmoid", "softmax"])
@pytest.mark.parametrize("cells", [0, 10**6], ids=["streamed", "resident"])
def test_settled_intercepts_have_no_slope_and_everything_is_told_of_where_they_are(kind, cells, monkeypatch):
    from crs_assets.science.probes import design

    monkeypatch.setattr(design, "_RESIDENT_CELLS", cells)
    x = features(5000, 6)
    if kind == "sigmoid":
        loss, target, outputs = SigmoidLoss(torch.from_numpy(binary_labels(x, labels=2))), [0, 1], 1
    else:
        loss, target, outputs = SoftmaxLoss(torch.from_numpy(classes(x, 3)), 3), [0, 0], 3
    objective = Objective(build_design(x, np.arange(5000), x.std(0).astype(np.float64), CPU), loss)
    problems = Problems(torch.tensor(target), torch.tensor([1e-3, 1.0], dtype=torch.float64))
    start = loss.project(somewhere(objective, 2, outputs))
    settled = settle_intercepts(objective, problems, start)
    expected = objective.evaluate(settled.parameters, problems)
    assert torch.equal(settled.parameters[:-1], start[:-1])
    assert (expected.value <= objective.evaluate(start, problems).value).all()
    assert expected.gradient[-1].abs().max() < 1e-12
    torch.testing.assert_close(settled.seen.value, expected.value, rtol=1e-13, atol=0)
    torch.testing.assert_close(settled.seen.curvature, expected.curvature, rtol=1e-9, atol=0)
    # Streamed rows are multiplied in float32.
    tolerance = 1e-12 if cells else 1e-6 * float(expected.gradient.abs().max())
    torch.testing.assert_close(settled.seen.gradient, expected.gradient, rtol=0, atol=tolerance)
