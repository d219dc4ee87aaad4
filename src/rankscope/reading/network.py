"""A module as a network of diagrams: its trace, read operation by operation."""

import copy
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.module import module_arrays
from rankscope.diagrams.network import (
    Box,
    Constant,
    Network,
    Step,
    Structure,
    diagrams_of,
    nodes_of,
)
from rankscope.diagrams.parts import Index, Node, Role
from rankscope.drawing.layout.tensors import plain_tex
from rankscope.errors import DiagramError, SizeError, UnsupportedModuleError
from rankscope.reading.calls import OPERATIONS
from rankscope.reading.captions import captioned
from rankscope.reading.drafting import Drafting, Known, bundle, unused
from rankscope.reading.exporting import Example
from rankscope.reading.meaning import MOVES, RULES
from rankscope.reading.rules import Reading, Rule
from rankscope.reading.simplifying import inline, split_rows
from rankscope.reading.trace import Operation, Trace, Value, trace
from rankscope.reading.views import ArrayView, guess, whole


def from_module(
    module: nn.Module, example: Example, *, depth: int | None = None, name: str | None = None
) -> Network:
    """Read a module as a network of diagrams.

    Every module that torch can export is read. What is a contraction, a sum, or a function of
    one (linear maps, convolutions, attention, normalizations, …) is a diagram; what only moves
    numbers is called by its name; everything else is called too, and drawn as opaque. The arrays
    of the network are those of `module_arrays`; numbers made in `forward` belong to the network.

    Args:
        module: is not changed, and is read in inference mode.
        example: a tensor, a tuple of what `forward` takes, a dict of it by name, or shapes.
        depth: draw modules that are nested this deep as boxes; 1 is one box for each child. By
            default everything is drawn.
        name: of the network; by default the module's class.

    Example:
        >>> network = from_module(nn.Sequential(nn.Linear(784, 256), nn.ReLU()), (2, 784))
        >>> [step.name for step in network.steps]
        ['0', '1']

    Raises:
        UnsupportedModuleError: if torch cannot export it.
        SizeError: if the module does not take the example, or the depth is below 1.
    """
    if depth is not None and depth < 1:
        raise SizeError(f"from_module: depth must be at least 1, got {depth}.")
    if isinstance(module, nn.MultiheadAttention):
        name = name or type(module).__name__
        module, example = _attending(module, example)
    made = trace(module, example, free_batch=False)
    return from_trace(made, module_arrays(module), depth=depth, name=name)


class _SelfAttention(nn.MultiheadAttention):
    """Attention of an input to itself, or to one other that gives keys and values."""

    def forward(self, query: Tensor, key: Tensor | None = None) -> Tensor:  # type: ignore[override]
        other = query if key is None else key
        return super().forward(query, other, other, need_weights=False)[0]


def _attending(
    module: nn.MultiheadAttention, example: Example
) -> tuple[nn.MultiheadAttention, Example]:
    """Attention that is given one or two inputs takes the missing ones from the last."""
    parts = (example,) if isinstance(example, Tensor) else tuple(example)
    is_one = isinstance(example, Tensor) or all(isinstance(part, int) for part in parts)
    if isinstance(example, Mapping) or (not is_one and len(parts) > MOST_SHARED):
        return module, example
    twin = copy.copy(module)
    twin.__class__ = _SelfAttention
    return twin, example


def from_trace(
    made: Trace, arrays: Mapping[str, Tensor], *, depth: int | None = None, name: str | None = None
) -> Network:
    """Read a trace as a network of diagrams.

    Args:
        made: of a module.
        arrays: that will be given when the network runs; others belong to the network.
        depth: as in `from_module`.
        name: of the network; by default that of the trace.
    """
    return _Reader(simplified(made.at_example()), made, arrays).network(name or made.name, depth)


MOST_SHARED = 2


class _Reader:
    """Reads one trace; all sizes are those of the example."""

    def __init__(self, folded: Trace, whole_trace: Trace, arrays: Mapping[str, Tensor]) -> None:
        self.trace = folded
        self.inputs = _input_names(folded, arrays)
        self.drafting = Drafting(reserved={*self.inputs.values(), *arrays})
        self.reading = Reading(self.drafting)
        self.paths: dict[str, str] = {}
        self.num_rows: dict[str, int] = {}
        for value, input_name in self.inputs.items():
            sorts = guess(len(value.shape))
            self.reading.views[value] = whole(input_name, value.shape, sorts, Role.DATA)
        for value, tensor in folded.arrays.items():
            self.reading.views[value] = self._array(value, tensor, whole_trace, arrays)

    def _array(
        self, value: Value, tensor: Tensor, whole_trace: Trace, arrays: Mapping[str, Tensor]
    ) -> ArrayView:
        is_given = value in whole_trace.arrays and value.name in arrays
        if not isinstance(tensor, nn.Parameter):
            self.reading.tensors[value] = tensor
        if not is_given:
            return self.reading.constant(value.name, tensor.detach())
        shape = tuple(tensor.shape)
        is_learned = isinstance(tensor, nn.Parameter)
        role = Role.PARAMETER if is_learned else Role.BUFFER
        self.num_rows[value.name] = next((size for size in shape if size > 1), 1)
        return whole(value.name, shape, guess(len(shape)), role)

    def network(self, name: str, depth: int | None) -> Network:
        names = _step_names(self.trace)
        for operation in self.trace.operations:
            count = len(self.drafting.steps)
            results = self._read(operation, names[operation])
            self.reading.views.update(zip(operation.outputs, results, strict=False))
            for step in self.drafting.steps[count:]:
                self.paths[step.name] = operation.path
        outputs = tuple(self._output(value) for value in self.trace.outputs)
        made = Network(
            name,
            tuple(self.drafting.steps),
            inputs=tuple(self.inputs.values()),
            input_shapes=tuple(value.shape for value in self.inputs),
            outputs=outputs,
            structure=_structure(self.trace),
        )
        if depth is None:
            made = inline(made)
            made = inline(split_rows(made, self.num_rows))
        else:
            made = with_boxes(made, self.paths, self.trace.modules, depth, self.num_rows)
        return captioned(self._with_constants(made), list(self.inputs.values()))

    def _read(self, operation: Operation, name: str) -> Sequence[ArrayView]:
        """The views that an operation makes: by its rule, or by a call."""
        rule = Rule(self.reading, operation, name)
        reader = RULES.get(operation.kind)
        if reader is not None and _is_readable(operation):
            count = len(self.drafting.steps)
            try:
                result = reader(rule)
            except (DiagramError, SizeError, UnsupportedModuleError):
                result = None
            if result is not None:
                return result if isinstance(result, tuple) else (result,)
            self.drafting.forget(count)
        counted = OPERATIONS.get(operation.kind)
        is_exact = operation.kind in MOVES and _has_fixed_indices(rule)
        return rule.call(Known(0 if counted is None else counted(rule)) if is_exact else None)

    def _output(self, value: Value) -> str:
        """The array that an output is, in its shape; copied if there is none."""
        view = self.reading.views[value]
        shapes = {
            name: shape for step in self.drafting.steps for name, shape in step.arrays.items()
        }
        shapes |= {name: given.shape for given, name in self.inputs.items()}
        shapes |= {name: tuple(numbers.shape) for name, numbers in self.reading.constants.items()}
        if view.is_plain and shapes.get(view.array) == value.shape:
            return view.array
        # A copy has one leg for each axis.
        copy = self.drafting.whole_copy("output", view)
        self.paths.setdefault(copy.array, "")
        return copy.array

    def _with_constants(self, made: Network) -> Network:
        read = {node.source for step in made.steps for node in _nodes(step)}
        constants = tuple(
            _constant(name, numbers)
            for name, numbers in self.reading.constants.items()
            if name in read or name in made.outputs
        )
        return replace(made, constants=constants)


def _nodes(step: Step) -> Iterator[Node]:
    if isinstance(step.body, Box):
        for inner in step.body.steps:
            yield from _nodes(inner)
    else:
        yield from nodes_of(step.body)


def _input_names(made: Trace, arrays: Mapping[str, Tensor]) -> dict[Value, str]:
    return {
        value: f"{value.name}_input" if value.name in arrays else value.name
        for value in made.inputs
    }


def _step_names(made: Trace) -> dict[Operation, str]:
    """A layer with a single operation gives its path to the step; others say what they do."""
    counts = Counter(operation.path for operation in made.operations)
    parents = {path.rpartition(".")[0] for path in made.modules if path} | {
        "".join(path[:at]) for path in made.modules for at, mark in enumerate(path) if mark == "."
    }
    return {
        operation: operation.path
        if operation.path and counts[operation.path] == 1 and operation.path not in parents
        else operation.name
        for operation in made.operations
    }


def _is_readable(operation: Operation) -> bool:
    """Diagrams hold floating-point numbers; looks at others are fine."""
    return (
        operation.output.dtype is not None
        and (operation.output.dtype.is_floating_point or operation.kind in LOOKS)
        and 0 not in operation.output.shape
    )


# Rules that move no numbers, and so may be used for integers and booleans as well.
LOOKS = frozenset(
    (
        "alias",
        "clone",
        "contiguous",
        "detach",
        "expand",
        "expand_as",
        "flatten",
        "permute",
        "reshape",
        "squeeze",
        "t",
        "to",
        "transpose",
        "unsqueeze",
        "view",
    )
)


def _has_fixed_indices(rule: Rule) -> bool:
    """Whether what is picked does not depend on the input."""
    if rule.operation.kind not in ("index", "index_select"):
        return True
    indices = rule.argument("indices") or [rule.argument("index")]
    return all(index is None or index in rule.reading.tensors for index in indices)


def _constant(name: str, numbers: Tensor) -> Constant:
    plain = numbers.detach().cpu().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return Constant(name, tuple(plain.shape), str(plain.dtype).removeprefix("torch."), data)


def _structure(made: Trace) -> Structure | None:
    """How the outputs are put together; None for a tensor by itself."""
    markers = [torch.empty(0) for _ in made.outputs]
    structure = _structure_of(made.restore(markers), {id(marker) for marker in markers})
    return None if structure.kind == "tensor" else structure


def _structure_of(part: Any, markers: set[int]) -> Structure:
    if id(part) in markers:
        return Structure("tensor")
    if part is None or isinstance(part, bool | int | float | str):
        return Structure("value", value=part)
    if not isinstance(part, Mapping | tuple | list):
        part = tuple(torch.utils._pytree.tree_leaves(part))
    names = tuple(part) if isinstance(part, Mapping) else getattr(part, "_fields", ())
    held = part.values() if isinstance(part, Mapping) else part
    is_plain = type(part) in (tuple, list, dict)
    home = "" if is_plain else f"{type(part).__module__}:"
    parts = tuple(_structure_of(each, markers) for each in held)
    return Structure(home + type(part).__name__, parts, tuple(map(str, names)))


# --- Operations of a trace that are one layer together: normalizations by the root mean square ----


def simplified(made: Trace) -> Trace:
    """The same trace with root-mean-square normalizations as one operation each.

    Models write them in five operations; as one, each is a region.
    """
    makers = {output: operation for operation in made.operations for output in operation.outputs}
    uses = made.num_uses()
    new: dict[Operation, Operation] = {}
    gone: set[Operation] = set()
    for operation in made.operations:
        matched = _rms_norm(operation, makers, uses)
        if matched is not None:
            new[operation], parts = matched
            gone.update(parts)
    operations = tuple(new.get(o, o) for o in made.operations if o not in gone)
    return replace(made, operations=operations)


def _rms_norm(
    product: Operation, makers: Mapping[Value, Operation], uses: Mapping[Value, int]
) -> tuple[Operation, list[Operation]] | None:
    """X * rsqrt(mean(x^2) + eps) over the last axis, and the operations that it replaces."""
    if product.kind != "mul":
        return None
    for name, other in (("self", "other"), ("other", "self")):
        given, factor = product.arguments.get(name), product.arguments.get(other)
        parts = _chain(factor, ("rsqrt", "add", "mean", "pow"), makers, uses)
        if parts is None or not isinstance(given, Value):
            continue
        _, total, mean, square = parts
        eps, axes = total["other"], mean.arguments.get("dim")
        fits = (
            square["self"] is given
            and square["exponent"] == 2
            and isinstance(eps, float)
            and axes in ([-1], [len(given.shape) - 1])
            and given.dtype == product.output.dtype
        )
        if fits:
            arguments: dict[str, Any] = {
                "input": given,
                "normalized_shape": [given.shape[-1]],
                "weight": None,
                "eps": eps,
            }
            one = replace(product, kind="rms_norm", arguments=MappingProxyType(arguments))
            return one, parts
    return None


def _chain(
    value: object,
    kinds: tuple[str, ...],
    makers: Mapping[Value, Operation],
    uses: Mapping[Value, int],
) -> list[Operation] | None:
    """The operations of these kinds that make a value, one from the other, used nowhere else."""
    parts: list[Operation] = []
    for kind in kinds:
        if not isinstance(value, Value) or value not in makers or uses[value] != 1:
            return None
        maker = makers[value]
        if maker.kind != kind:
            return None
        parts.append(maker)
        value = maker.arguments.get("self")
    return parts


# --- An outline: modules that are nested deep enough are boxes, which can be opened again ---------


def with_boxes(
    network: Network,
    paths: Mapping[str, str],
    modules: Mapping[str, str],
    depth: int,
    num_rows: Mapping[str, int],
) -> Network:
    """The network with one box for each module at some depth.

    A box holds the steps of its module, so that an outline runs and costs what the network does.

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
