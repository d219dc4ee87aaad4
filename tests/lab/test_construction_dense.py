import numpy
import pytest
import torch
from torch import nn

from rankscope.errors import ConstructionError
from rankscope.lab.constructions import (
    Box,
    DenseLayer,
    dense_layers,
    evaluate,
    rational,
    relu_network,
    require_finite,
    require_shape,
)

# Dense.


def test_a_network_rebuilt_from_its_layers_computes_the_same(generator: torch.Generator) -> None:
    network = nn.Sequential(
        nn.Sequential(nn.Linear(3, 5), nn.ReLU()), nn.Linear(5, 4, bias=False), nn.ReLU()
    ).append(nn.Linear(4, 2))
    points = torch.randn(7, 3, generator=generator).double()
    rebuilt = relu_network(dense_layers(network))
    torch.testing.assert_close(rebuilt(points), network.double()(points))
    numpy.testing.assert_allclose(evaluate(rebuilt, points.numpy()), rebuilt(points).detach())


def test_an_affine_map_after_another_is_their_composition() -> None:
    draw = numpy.random.default_rng(0)
    inner = DenseLayer(draw.standard_normal((4, 2)), draw.standard_normal(4))
    outer = DenseLayer(draw.standard_normal((3, 4)), draw.standard_normal(3))
    points = draw.standard_normal((5, 2))
    numpy.testing.assert_allclose(outer.after(inner)(points), outer(inner(points)))


def test_other_activations_are_refused_by_name() -> None:
    with pytest.raises(ConstructionError, match=r"part 1 is a Tanh where a ReLU belongs"):
        dense_layers(nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 1)))


def test_a_network_that_ends_with_its_activation_is_refused() -> None:
    with pytest.raises(ConstructionError, match=r"end with a Linear; this one has 2 parts"):
        dense_layers(nn.Sequential(nn.Linear(1, 2), nn.ReLU()))


def test_weights_that_are_not_finite_are_counted_and_refused() -> None:
    layer = nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight[1, 0] = torch.inf
        layer.bias[2] = torch.nan
    with pytest.raises(ConstructionError, match=r"2 of 9 in a 2 -> 3 layer are not"):
        dense_layers(layer)


def test_other_sizes_are_refused() -> None:
    layers = dense_layers(nn.Linear(2, 3))
    with pytest.raises(ConstructionError, match=r"someone needs .* R\^1 to R\^1, .* R\^2 to R\^3"):
        require_shape("someone", layers, inputs=1, outputs=1)


def test_the_first_number_that_is_not_finite_is_named() -> None:
    with pytest.raises(
        ConstructionError, match=r"someone: slopes must be finite, got nan at pos.* 1"
    ):
        require_finite("someone", points=1.0, slopes=numpy.array([0.0, numpy.nan]))


def test_fractions_are_the_same_numbers() -> None:
    values = numpy.random.default_rng(0).standard_normal((2, 3))
    assert (rational(values).astype(float) == values).all()


# Box.


def test_cell_centres_are_those_of_all_cells_once() -> None:
    box = Box.of([0.0, -1.0], [1.0, 1.0])
    chunks = list(box.cell_centres((3, 4), chunk=5))
    assert [len(chunk) for chunk in chunks] == [5, 5, 2]
    centres = numpy.concatenate(chunks)
    expected = [((i + 0.5) / 3, -1 + (j + 0.5) / 2) for i in range(3) for j in range(4)]
    numpy.testing.assert_allclose(centres, expected)


def test_the_lowest_value_of_an_affine_map_is_at_a_corner() -> None:
    box = Box.of([0.0, -1.0, 2.0], [1.0, 1.0, 5.0])
    draw = numpy.random.default_rng(0)
    layer = DenseLayer(draw.standard_normal((4, 3)), draw.standard_normal(4))
    numpy.testing.assert_allclose(box.lowest(layer), layer(box.points(2)).min(axis=0))


def test_a_diagonal_goes_from_corner_to_corner() -> None:
    assert Box.of([0.0, 2.0], [1.0, 4.0]).diagonal(3).tolist() == [[0, 2], [0.5, 3], [1, 4]]


def test_boxes_that_do_not_go_upwards_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"coordinate 1 goes from 2.0 to 2.0"):
        Box.of([0.0, 2.0], [1.0, 2.0])
    with pytest.raises(ConstructionError, match=r"got shapes \(2,\) and \(3,\)"):
        Box.of([0.0, 2.0], [1.0, 3.0, 4.0])
    with pytest.raises(ConstructionError, match=r"high must be finite, got inf"):
        Box.of([0.0], [numpy.inf])
