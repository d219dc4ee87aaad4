"""Rademacher complexity by fitting random signs."""

import math

import pytest
import torch
from torch import Tensor

from rankscope.errors import GeneralizationError
from rankscope.generalize import RademacherComplexity, measure_rademacher, rademacher_bound

LABELS = torch.arange(400) % 5


def test_what_fits_everything_reaches_the_maximum() -> None:
    found = measure_rademacher(lambda targets: targets, LABELS, 5, num_draws=3)
    assert found.value == pytest.approx(found.maximum)
    assert len(found.draws) == 3
    # The share of positive signs, four deviations around one half.
    assert abs(found.maximum - 0.5) < 4 * 0.5 / math.sqrt(3 * 400)


def test_one_fixed_classifier_has_none() -> None:
    guess = torch.zeros_like(LABELS)
    found = measure_rademacher(lambda _: guess, LABELS, 5, num_draws=20)
    assert found.value < 4 / math.sqrt(20 * 400)


def test_targets_are_right_or_wrong_as_the_signs_say() -> None:
    seen: list[Tensor] = []

    def fit(targets: Tensor) -> Tensor:
        seen.append(targets)
        return torch.where(torch.arange(400) < 100, targets, LABELS)

    found = measure_rademacher(fit, LABELS, 5, seed=3)
    (targets,) = seen
    assert int(targets.min()) >= 0
    assert int(targets.max()) < 5
    assert float((targets != LABELS).double().mean()) == found.maximum
    assert found.value == pytest.approx(float((targets != LABELS)[:100].sum()) / 400)


def test_the_bound_is_its_formula() -> None:
    complexity = RademacherComplexity(0.3, 0.5, (0.3,))
    bound = rademacher_bound(complexity, 0.1, 200, chance=0.02)
    assert bound.value == pytest.approx(0.1 + 0.6 + 3 * math.sqrt(math.log(100) / 400))
    assert not bound.is_rigorous
    assert dict(bound.constants)["largest complexity"] == 0.5


@pytest.mark.parametrize(
    ("labels", "classes", "draws"), [([0, 5], 5, 1), ([], 5, 1), ([0], 1, 1), ([0], 5, 0)]
)
def test_labels_and_draws_that_do_not_fit_are_refused(
    labels: list[int], classes: int, draws: int
) -> None:
    given = torch.tensor(labels, dtype=torch.long)
    with pytest.raises(GeneralizationError, match=rf"labels 0\.\.{classes - 1}.*{draws} draws"):
        measure_rademacher(lambda targets: targets, given, classes, num_draws=draws)


def test_predictions_of_another_shape_are_refused() -> None:
    with pytest.raises(GeneralizationError, match=r"must give 400 classes, got shape \(2,\)"):
        measure_rademacher(lambda targets: targets[:2], LABELS, 5)


@pytest.mark.parametrize(
    ("empirical", "size", "chance"), [(-0.1, 5, 0.1), (0.1, 0, 0.1), (0.1, 5, 0.0)]
)
def test_what_is_no_probability_or_count_is_refused(
    empirical: float, size: int, chance: float
) -> None:
    complexity = RademacherComplexity(0.3, 0.5, (0.3,))
    with pytest.raises(GeneralizationError, match=f"got {empirical}, {chance} and {size}"):
        rademacher_bound(complexity, empirical, size, chance=chance)
