import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.errors import RobustnessError
from rankscope.robust import LipschitzBound, certified_radii, lipschitz_bound
from rankscope.robust.margins import margins


def test_radii_are_margins_over_root_2_times_the_constant() -> None:
    model = nn.Identity()  # of two outputs whose difference has constant √2
    points = torch.tensor([[3.0, 1.0], [1.0, 3.0]])
    bound = lipschitz_bound(model, (2,))
    found = certified_radii(points, torch.tensor([0, 0]), bound)
    assert found.tolist() == pytest.approx([2 / math.sqrt(2), 0.0], rel=1e-5)


@settings(deadline=None, max_examples=6)
@given(seed=st.integers(0, 2**16), classes=st.integers(2, 5))
def test_linear_classifiers_get_their_exact_radii(seed: int, classes: int) -> None:
    """The distance to the nearest of the planes f_y = f_i."""
    torch.manual_seed(seed)
    model = nn.Linear(3, classes).double()
    points = torch.randn(6, 3, dtype=torch.float64)
    with torch.no_grad():
        outputs = model(points)
    labels = outputs.argmax(dim=1)
    found = certified_radii(outputs, labels, lipschitz_bound(model, (3,)))
    weight = model.weight.detach()
    for radius, output, label in zip(found, outputs, labels, strict=True):
        distances = [
            float((output[label] - output[i]) / (weight[label] - weight[i]).norm())
            for i in range(classes)
            if i != int(label)
        ]
        assert float(radius) == pytest.approx(min(distances), rel=1e-6, abs=1e-12)


def test_outputs_that_never_differ_more_are_safe_everywhere() -> None:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.ones(2, 2))
        model.bias.copy_(torch.tensor([1.0, 0.0]))
        outputs = model(torch.zeros(1, 2))
    bound = lipschitz_bound(model, (2,))
    assert certified_radii(outputs, torch.tensor([0]), bound).tolist() == [math.inf]
    assert certified_radii(outputs, torch.tensor([1]), bound).tolist() == [0.0]


def test_margins_list_the_other_classes_in_order() -> None:
    found = margins(torch.tensor([[3.0, 1.0, 4.0], [3.0, 1.0, 4.0]]), torch.tensor([1, 2]))
    assert found.tolist() == [[-2.0, -3.0], [1.0, 3.0]]


@pytest.mark.parametrize(
    ("outputs", "labels", "message"),
    [
        (torch.zeros(2, 3), torch.tensor([0]), r"shape \(2, 3\) and labels of shape \(1,\)"),
        (torch.zeros(2, 1), torch.tensor([0, 0]), r"at least 2 classes.*shape \(2, 1\)"),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), r"outputs of shape \(0, 3\)"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), r"Labels must be 0\.\.2, got 0 to 3"),
        (torch.tensor([[0.0, math.nan]]), torch.tensor([0]), "1 of 2 outputs are not finite"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    outputs: torch.Tensor, labels: torch.Tensor, message: str
) -> None:
    with pytest.raises(RobustnessError, match=message):
        margins(outputs, labels)


@pytest.mark.parametrize(("pairs", "held"), [(None, 0), (torch.ones(2, 2), 2)])
def test_a_bound_of_another_model_is_refused(pairs: torch.Tensor | None, held: int) -> None:
    bound = LipschitzBound(1.0, pairs, (), ())
    with pytest.raises(RobustnessError, match=f"with {held} classes, but outputs have 3"):
        certified_radii(torch.zeros(1, 3), torch.tensor([0]), bound)
