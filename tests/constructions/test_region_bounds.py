import pytest

from rankscope.constructions.regions import (
    montufar_lower_bound,
    product_upper_bound,
    zaslavsky_upper_bound,
)
from rankscope.errors import ConstructionError


@pytest.mark.parametrize(
    ("num_inputs", "widths", "lower", "upper"),
    [
        (1, [2, 2, 2], 12, 27),
        (1, [4, 4], 20, 25),
        (2, [4], 11, 11),
        (2, [4, 4], 44, 121),
        (2, [4, 4, 4], 176, 1331),
        (2, [8, 8, 8], 9472, 50653),
        (3, [6, 6], 336, 1764),
    ],
)
def test_bounds_are_those_of_the_specification(
    num_inputs: int, widths: list[int], lower: int, upper: int
) -> None:
    assert montufar_lower_bound(num_inputs=num_inputs, widths=widths).value == lower
    assert product_upper_bound(num_inputs=num_inputs, widths=widths).value == upper


@pytest.mark.parametrize(("num_inputs", "width"), [(1, 1), (2, 7), (3, 5), (5, 3)])
def test_one_layer_has_the_regions_of_an_arrangement(num_inputs: int, width: int) -> None:
    # Adding a hyperplane adds the regions of the arrangement that the others cut into it.
    def regions(dimension: int, planes: int) -> int:
        if dimension == 0 or planes == 0:
            return 1
        return regions(dimension, planes - 1) + regions(dimension - 1, planes - 1)

    bound = zaslavsky_upper_bound(num_inputs=num_inputs, width=width)
    assert bound.value == regions(num_inputs, width)
    assert bound.value == product_upper_bound(num_inputs=num_inputs, widths=[width]).value


def test_a_narrow_layer_stays_narrow_in_the_product() -> None:
    # After one unit everything is a line.
    assert product_upper_bound(num_inputs=3, widths=[1, 5]).value == 2 * 6


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"got 0 inputs and widths \[3\]"):
        zaslavsky_upper_bound(num_inputs=0, width=3)
    with pytest.raises(ConstructionError, match=r"got 2 inputs and widths \[\]"):
        product_upper_bound(num_inputs=2, widths=[])
    with pytest.raises(ConstructionError, match=r"layer 2 has 1 units, fewer than the 2 inputs"):
        montufar_lower_bound(num_inputs=2, widths=[4, 1])
