"""A slow, independent way to give a diagram a value: one dense einsum per region."""

from collections.abc import Callable, Mapping

import numpy as np
import opt_einsum
import pytest
from numpy.typing import NDArray

from rankscope.diagrams import (
    PARAMETER_ROLES,
    Convolution,
    Diagram,
    Region,
    entries,
    evaluate_scale,
)

Array = NDArray[np.float64]


def shape(diagram: Diagram, node: str) -> tuple[int, ...]:
    sizes = [diagram.sizes[index] for index in diagram.node_by_name[node].indices]
    known = [size for size in sizes if size is not None]
    assert len(known) == len(sizes), f"{node} has sizes {sizes}"
    return tuple(known)


def random_arrays(diagram: Diagram) -> dict[str, Array]:
    draw = np.random.default_rng(0)
    return {node.source: draw.normal(size=shape(diagram, node.name)) for node in diagram.nodes}


def count_parameters(diagram: Diagram) -> int:
    counted: dict[str, int] = {}
    for node in diagram.nodes:
        if node.role in PARAMETER_ROLES:
            number = entries(diagram, node)
            assert number is not None
            counted[node.source] = number
    return sum(counted.values())


def evaluate(diagram: Diagram, arrays: Mapping[str, Array]) -> Array:
    values = {node.name: arrays[node.source] for node in diagram.nodes}
    for region in diagram.structure.evaluation_order:
        terms: list[object] = []
        for operand in diagram.structure.operands[region]:
            terms += [values[operand.name], list(operand.indices)]
        for name in diagram.structure.convolutions[region]:
            convolution = diagram.convolution_by_name[name]
            terms += [_dense(diagram, convolution), list(convolution.indices)]
        legs = diagram.structure.legs[region]
        value = np.asarray(opt_einsum.contract(*terms, list(legs)))
        if region is None:
            return value
        values[region] = _finished(diagram, diagram.region_by_name[region], legs, value)
    raise AssertionError("the outermost region is always last")


def _dense(diagram: Diagram, convolution: Convolution) -> Array:
    sizes = [diagram.sizes[leg] for leg in convolution.indices]
    dense = np.zeros([size or 0 for size in sizes])
    for place, tap, result in np.ndindex(dense.shape):
        start = convolution.stride * result - convolution.padding[0]
        dense[place, tap, result] = place == start + convolution.dilation * tap
    return dense


def _finished(diagram: Diagram, region: Region, legs: tuple[str, ...], value: Array) -> Array:
    if region.scale:
        value = value * evaluate_scale(region.scale, diagram.symbols)
    if region.causal:
        query, key = (legs.index(leg) for leg in region.causal)
        places = np.indices(value.shape)
        value = np.where(places[key] > places[query], -np.inf, value)
    if region.function.name == "relu":
        return np.maximum(value, 0)
    assert region.function.name == "softmax"
    axes = tuple(legs.index(leg) for leg in region.over)
    powers = np.exp(value - value.max(axes, keepdims=True))
    return np.asarray(powers / powers.sum(axes, keepdims=True))


@pytest.fixture(name="evaluate", scope="session")
def evaluate_fixture() -> Callable[[Diagram, Mapping[str, Array]], Array]:
    return evaluate


@pytest.fixture(name="random_arrays", scope="session")
def random_arrays_fixture() -> Callable[[Diagram], dict[str, Array]]:
    return random_arrays


@pytest.fixture(name="count_parameters", scope="session")
def count_parameters_fixture() -> Callable[[Diagram], int]:
    return count_parameters
