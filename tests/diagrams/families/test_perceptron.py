import re
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from rankscope.diagrams import Diagram
from rankscope.diagrams.families import multilayer_perceptron
from rankscope.errors import FamilyError

Array = NDArray[np.float64]


def test_a_perceptron_applies_relu_after_each_layer_but_the_last(
    evaluate: Callable[[Diagram, dict[str, Array]], Array],
    random_arrays: Callable[[Diagram], dict[str, Array]],
) -> None:
    diagram = multilayer_perceptron(widths=(3, 5, 4, 2), batch_size=6)
    arrays = random_arrays(diagram)
    value = arrays["X"]
    for layer in (1, 2, 3):
        value = value @ arrays[f"W{layer}"]
        if layer < 3:
            value = np.maximum(value, 0)
    np.testing.assert_allclose(evaluate(diagram, arrays), value)


def test_barriers_of_a_perceptron_are_nested() -> None:
    diagram = multilayer_perceptron(widths=(3, 5, 4, 2))
    assert [region.members for region in diagram.regions] == [("X", "W1"), ("H1", "W2")]
    assert diagram.structure.evaluation_order == ("H1", "H2", None)


def test_parameters_are_the_sum_of_neighbouring_widths(
    count_parameters: Callable[[Diagram], int],
) -> None:
    diagram = multilayer_perceptron(widths=(784, 256, 10))
    assert count_parameters(diagram) == 784 * 256 + 256 * 10


def test_without_widths_there_are_two_layers_of_symbols() -> None:
    diagram = multilayer_perceptron()
    assert [index.tex for index in diagram.indices] == ["B", "F", "4F", "F"]
    assert diagram.title == "Perceptron with 2 layers"


def test_features_alone_set_the_widths() -> None:
    assert multilayer_perceptron(num_features=8).sizes == {"b": 1, "w0": 8, "w1": 32, "w2": 8}


def test_features_and_widths_together_are_refused() -> None:
    with pytest.raises(FamilyError, match=r"F .* gives the widths .* but widths are \(3, 2\)"):
        multilayer_perceptron(widths=(3, 2), num_features=8)


def test_one_layer_has_no_barrier() -> None:
    diagram = multilayer_perceptron(widths=(3, 2))
    assert (diagram.regions, diagram.title) == ((), "Perceptron with 1 layer")


@pytest.mark.parametrize("widths", [784, (784,), ()])
def test_fewer_than_two_widths_are_refused(widths: int | tuple[int, ...]) -> None:
    wanted = re.escape(f"layer, got {widths}.")
    with pytest.raises(FamilyError, match=rf"mlp: widths must be at least 2 integers, .*{wanted}"):
        multilayer_perceptron(widths=widths)
