"""Makes sure that every input is read in the shape it is given in."""

from collections.abc import Sequence
from dataclasses import replace

from rankscope.diagrams.network import Network, diagrams_of
from rankscope.diagrams.parts import Role
from rankscope.diagrams.reading.notebook import Notebook
from rankscope.diagrams.reading.sketch import unused
from rankscope.diagrams.reading.splicing import with_reads
from rankscope.diagrams.reading.values import Value


def with_whole_inputs(network: Network, inputs: Sequence[Value]) -> Network:
    """A network in which some node reads each input as it is.

    Where a module reshapes an input before anything else, a first step passes it on; without
    it, nothing in the network would say which shape to give.
    """
    for value in inputs:
        shapes = _shapes_read(network, value.array)
        if shapes and value.shape not in shapes:
            network = _with_copy(network, value)
    return network


def _shapes_read(network: Network, array: str) -> list[tuple[int | None, ...]]:
    return [
        tuple(diagram.index_by_name[index].size for index in held)
        for diagram in diagrams_of(network)
        for node in diagram.nodes
        if node.role is Role.DATA and node.source == array and node.rows is None
        for held in (node.indices[:-1] if node.is_one_hot else node.indices,)
    ]


def _with_copy(network: Network, value: Value) -> Network:
    notebook = Notebook(reserved={step.name for step in network.steps})
    name = notebook.copied(unused(f"{value.array}.given", notebook.reserved), value).array
    steps = [
        replace(step, body=with_reads(step.body, {value.array: name})) for step in network.steps
    ]
    return replace(network, steps=(*notebook.steps, *steps))
