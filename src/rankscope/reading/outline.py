"""A network as an outline: modules that are nested deep enough are boxes.

A box holds the steps of its module. It can be opened again (`flattened`), so that an outline runs
and costs what the whole network does.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Box, Network, Step, diagrams_of, nodes_of
from rankscope.diagrams.parts import Index, Node, Role
from rankscope.drawing.layout.tensors import plain_tex
from rankscope.reading.drafting import bundle, unused
from rankscope.reading.simplifying import inline, split_rows


def with_boxes(
    network: Network,
    paths: Mapping[str, str],
    modules: Mapping[str, str],
    depth: int,
    num_rows: Mapping[str, int],
) -> Network:
    """The network with one box for each module at some depth.

    Args:
        network: whose steps are in the order in which the modules run.
        paths: of the module that each step belongs to.
        modules: class of every module, by path.
        depth: how many modules are around what is shown, the outermost not counted.
        num_rows: length of the first axis of each parameter array.
    """
    owners = [_owner(paths.get(step.name, ""), modules, depth) for step in network.steps]
    shapes = {name: shape for step in network.steps for name, shape in step.arrays.items()}
    places = {name: place for place, step in enumerate(network.steps) for name in step.arrays}
    last_read = dict.fromkeys(network.outputs, len(network.steps))
    for place, step in enumerate(network.steps):
        for node in nodes_of(step.body):
            if node.role is Role.DATA and node.source in places:
                last_read[node.source] = max(last_read.get(node.source, 0), place)
    steps: list[Step] = []
    taken: set[str] = set()
    position = 0
    for owner, group in itertools.groupby(zip(owners, network.steps, strict=True), lambda x: x[0]):
        own = tuple(step for _, step in group)
        position += len(own)
        made = tuple(
            name for step in own for name in step.arrays if last_read.get(name, -1) >= position
        )
        part = Network(network.name, own, outputs=made or tuple(own[-1].arrays))
        part = inline(split_rows(inline(part), num_rows))
        if owner is None:
            steps += part.steps
            continue
        name = unused(owner, taken)
        taken.add(name)
        box = _box(name, modules[owner], part, shapes)
        steps.append(Step(name, box))
    return replace(network, steps=tuple(steps))


def _owner(path: str, modules: Mapping[str, str], depth: int) -> str | None:
    """The module at a depth around a path, or None if there are not as many."""
    words = path.split(".") if path else []
    around = [".".join(words[:count]) for count in range(1, len(words) + 1)]
    chain = [each for each in around if each in modules]
    return chain[depth - 1] if len(chain) >= depth else None


def _box(name: str, kind: str, part: Network, shapes: Mapping[str, Sequence[int | None]]) -> Box:
    inside = {array for step in part.steps for array in step.arrays}
    read = dict.fromkeys(
        node.source
        for step in part.steps
        for node in nodes_of(step.body)
        if node.role is Role.DATA and node.source not in inside
    )
    legs: list[Index] = []
    nodes: list[Node] = []
    for place, array in enumerate(read):
        legs.append(_leg(f"i{place}", shapes.get(array) or _shape_read(part, array)))
        nodes.append(Node(f"X{place}", (legs[-1].name,), Role.DATA, None, array))
    made = [_leg(f"o{place}", shapes[array]) for place, array in enumerate(part.results)]
    label = rf"{plain_tex(name)}:\ \mathrm{{{kind.replace('_', chr(92) + '_')}}}"
    every = tuple(index.name for index in (*legs, *made))
    operation = Node("module", every, Role.OPERATION, label)
    diagram = Diagram(
        name, (*legs, *made), (*nodes, operation), tuple(index.name for index in made)
    )
    return Box(name, kind, part.steps, diagram, part.results)


def _leg(name: str, shape: Sequence[int | None]) -> Index:
    return bundle(name, tuple(size or 1 for size in shape))


def _shape_read(part: Network, array: str) -> Sequence[int | None]:
    """The shape in which an input is read first."""
    for step in part.steps:
        for diagram in diagrams_of(step.body):
            for node in diagram.nodes:
                if node.source == array and node.role is Role.DATA:
                    held = node.indices[:-1] if node.is_one_hot else node.indices
                    return [diagram.index_by_name[index].size for index in held]
    return ()
