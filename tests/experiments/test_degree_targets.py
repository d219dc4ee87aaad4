"""Targets: their rank, the error that the lower degree cannot avoid, and refusals."""

import pytest
import torch

from rankscope.errors import ExperimentError
from rankscope.experiments.degree_tasks import TargetSearch
from rankscope.separation.measuring.progress import Progress
from rankscope.separation.nearby.measures import Uniform
from rankscope.separation.nearby.quadrature import quadrature_kernel
from rankscope.training.batches import seed_of

SEARCH = TargetSearch((3,), 5, num_inputs=4, lower_degree=2, steps=10)


def test_a_target_is_proved_to_be_out_of_reach_of_the_lower_degree() -> None:
    steps: list[Progress] = []
    target = SEARCH.find(steps.append)
    assert [step.done for step in steps] == list(range(1, 11))
    # The bounds of degrees 3 and 2 in two inputs on each side.
    assert (target.rank, target.lower_rank) == (6, 4)
    kernel = quadrature_kernel(target, SEARCH.partition, measure=Uniform(), num_nodes=4)
    values = torch.linalg.svdvals(torch.from_numpy(kernel))
    torch.testing.assert_close(values.square().sum(), torch.ones((), dtype=torch.float64))
    least = values[4:].square().sum().sqrt()
    torch.testing.assert_close(torch.tensor(target.least_error, dtype=torch.float64), least)


def test_no_quadratic_polynomial_comes_nearer_than_the_least_error() -> None:
    """The best one, by least squares on a rule that is exact for both."""
    target = SEARCH.find()
    nodes, weights = (torch.from_numpy(array) for array in Uniform().rule(4))
    points = torch.cartesian_prod(*[nodes] * 4)
    roots = torch.cartesian_prod(*[weights] * 4).prod(dim=1).sqrt()
    ones = torch.cat([torch.ones(len(points), 1, dtype=torch.float64), points], dim=1)
    squares = torch.stack([ones[:, i] * ones[:, j] for i in range(5) for j in range(i + 1)], dim=1)
    wanted = roots * target(points)
    basis = torch.linalg.qr(roots[:, None] * squares)[0]
    missed = wanted - basis @ (basis.T @ wanted)
    assert float(missed.norm()) >= target.least_error


def test_searching_makes_the_target_harder() -> None:
    longer = TargetSearch((3,), 5, num_inputs=4, lower_degree=2, steps=40)
    assert longer.find().least_error > SEARCH.find().least_error


def test_the_same_search_finds_the_same_target() -> None:
    first, again = SEARCH.find().network, SEARCH.find().network
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    assert seed_of("target", 0) != seed_of("target", 1)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ExperimentError, match="even number of inputs, got 5"):
        TargetSearch((3,), 5, num_inputs=5, lower_degree=2)
    with pytest.raises(ExperimentError, match=r"rank above 6, proved 6.* seed than 0"):
        TargetSearch((3,), 5, num_inputs=4, lower_degree=3, steps=0).find()
