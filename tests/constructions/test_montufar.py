import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.constructions.dense import Box
from rankscope.constructions.explicit_networks import montufar_network
from rankscope.constructions.regions import montufar_lower_bound, regions_in_plane, regions_on_line
from rankscope.constructions.regions_space import regions_in_space
from rankscope.errors import ConstructionError


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_the_bound_is_attained_on_the_unit_interval(widths: list[int]) -> None:
    network = montufar_network(num_inputs=1, widths=widths)
    found = regions_on_line(network, ends=(0.0, 1.0), exactly=True)
    assert found.num_patterns == montufar_lower_bound(num_inputs=1, widths=widths).value
    if widths[-1] > 1:
        assert found.num_affine_pieces == found.num_patterns


@pytest.mark.parametrize("widths", [[2], [3], [4, 4], [5, 6, 3], [4, 4, 4], [2, 7]])
def test_the_bound_is_attained_in_the_unit_square(widths: list[int]) -> None:
    found = regions_in_plane(montufar_network(num_inputs=2, widths=widths), Box.unit(2))
    assert found.num_patterns == montufar_lower_bound(num_inputs=2, widths=widths).value
    assert found.num_affine_pieces == found.num_patterns


@pytest.mark.parametrize("widths", [[5], [6, 4]])
def test_the_bound_is_attained_in_the_unit_cube(widths: list[int]) -> None:
    found = regions_in_space(montufar_network(num_inputs=3, widths=widths), Box.unit(3))
    assert found.num_patterns == montufar_lower_bound(num_inputs=3, widths=widths).value
    assert found.num_affine_pieces == found.num_patterns
    assert found.num_unproved == 0


def test_layers_that_are_too_narrow_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"layer 1 has 2 units, fewer than the 3 inputs"):
        montufar_network(num_inputs=3, widths=[2, 3])
