"""A model as operations on samples, read from its trace.

The trace says what happens to a batch. Certificates speak about one sample, so that here the first
axis of every value is that of the samples and nothing mixes them; weights that are computed from
parameters are computed once; layers whose parts say less than the whole are one operation.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, takewhile
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import SizeError, UnsupportedModuleError
from rankscope.reading.exporting import Shape
from rankscope.reading.trace import Operation, Trace, Value, is_random, trace
from rankscope.robust.norm_preserving import NormalizedLinear, OrthogonalLinear
from rankscope.robust.operator_norms import ORTHOGONAL

_BATCH, _OTHER_BATCH = 2, 3  # two sizes, so that one written into a shape is noticed
_TO_NUMBERS = frozenset(("item", "_local_scalar_dense", "is_nonzero", "equal"))
_BUILT = (*ORTHOGONAL, OrthogonalLinear, NormalizedLinear)  # their kernels are made as they run
_COPIES = frozenset(("clone", "contiguous", "alias", "detach", "lift_fresh_copy"))


@dataclass(frozen=True, eq=False)
class Node:
    """One operation, or one module that is taken whole, with a single output.

    Args:
        name: the path of its module and the kind; of a module that is taken whole, its path.
        kind: of the operation; of a module that is taken whole, the name of its class.
        inputs: the values it takes that depend on the model's input; one that is taken twice
            stands twice.
        output: what it makes.
        arguments: of the operation by name: a tensor or a number where they do not depend on the
            input, a `Value` where they do; none of a module that is taken whole.
        module: that is taken whole, or None.
        function: its output for batches of any length, one tensor for each of `inputs`.
        source: the operation, or the last one of the module.
        reader: on whose behalf it was read.
    """

    name: str
    kind: str
    inputs: tuple[Value, ...]
    output: Value
    arguments: Mapping[str, Any]
    module: nn.Module | None
    function: Callable[..., Tensor]
    source: Operation
    reader: str

    @property
    def path(self) -> str:
        """Path of the module that the operation is, or is part of."""
        return self.name if self.module is not None else self.source.path

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def run(self, *inputs: Tensor) -> Tensor:
        """Its output for batches of any length, one tensor for each of `inputs`."""
        return self.function(*inputs)

    def refusal(self, reason: str) -> UnsupportedModuleError:
        """What to raise, with the name of the operation and its module."""
        named = replace(self.source, kind=self.kind, path=self.path)
        return named.refusal(self.reader, reason)


@dataclass(frozen=True, eq=False)
class Graph:
    """Operations in the order in which they run, from one input to one output."""

    input: Value
    nodes: tuple[Node, ...]
    output: Value

    def run(self, inputs: Tensor) -> Tensor:
        """What the model gives for a batch."""
        known = {self.input: inputs}
        for node in self.nodes:
            known[node.output] = node.run(*(known[v] for v in node.inputs))
        return known[self.output]

    def until(self, count: int) -> "Graph":
        """The first operations only, up to the output of the last of them."""
        return Graph(self.input, self.nodes[:count], self.nodes[count - 1].output)


def sample_shape(value: Value) -> Shape:
    """The shape of one sample of a value."""
    return value.shape[1:]


class Reading:
    """A model's graph, and the model itself to compare it with.

    Args:
        model: takes one batch and gives one batch; it is not changed.
        input_shape: of one sample.
        wholes: whether a module is one operation.
        dtype: of the inputs; None for that of the model's parameters.
        reader: who reads, as a user calls it.

    Raises:
        UnsupportedModuleError: if torch cannot export the model, or it looks at numbers, or a
            module that is taken whole takes several values.
        SizeError: if it does not take such inputs.
    """

    def __init__(
        self,
        model: nn.Module,
        input_shape: Shape,
        *,
        wholes: Callable[[nn.Module], bool],
        dtype: torch.dtype | None,
        reader: str,
    ) -> None:
        self._reader, self._name = reader, type(model).__name__
        self._model = _with_fixed_kernels(model)
        like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
        generator = torch.Generator().manual_seed(0)
        self._batches = [
            torch.rand(size, *input_shape, generator=generator).to(like).to(dtype or like.dtype)
            for size in (_BATCH, _OTHER_BATCH)
        ]
        try:
            whole = trace(self._model, self._batches[0])
        except SizeError as error:
            raise SizeError(
                f"{self._name} cannot be run on inputs of shape {input_shape}: "
                f"{str(error).rpartition(': ')[2]}"
            ) from error
        self._trace = whole.constants_folded()
        self.nodes = tuple(_Nodes(self._trace, self._model, wholes, reader))

    def graph(self) -> Graph:
        """The graph, if it computes for each sample alone what the model computes.

        Raises:
            UnsupportedModuleError: if there is not one output that depends on the input, or
                samples are not along the first axis everywhere, or they are taken together.
        """
        (start,), outputs = self._trace.inputs, self._trace.outputs
        made = {start, *(node.output for node in self.nodes)}
        same = _copies(self._trace)
        output = same.get(outputs[0], outputs[0]) if len(outputs) == 1 else None
        if output is None or output not in made:
            raise UnsupportedModuleError(
                f"{self._reader}: {self._name} must give one tensor that depends on its input, got "
                f"{len(outputs)} tensors, of which {len(made.intersection(outputs))} depend on it."
            )
        for node in self.nodes:
            _require_samples_first(node, start)
        graph = Graph(start, self.nodes, output)
        self._require_equal(graph)
        return graph

    def _require_equal(self, graph: Graph) -> None:
        """Run the graph on other inputs, and the model on each of them alone."""
        inputs = self._batches[1]
        try:
            with torch.no_grad():
                made = graph.run(inputs)
                expected = torch.cat([self._model(sample[None]) for sample in inputs])
        except (RuntimeError, IndexError, ValueError) as error:
            raise UnsupportedModuleError(
                f"{self._reader}: {self._name} writes the number of samples into its shapes: read "
                f"with {_BATCH}, it cannot be run with {_OTHER_BATCH} or 1 ({error})."
            ) from error
        # Rounding differs with the size of a batch, and networks amplify it.
        tolerance = torch.finfo(expected.dtype).eps ** 0.5
        is_same = made.shape == expected.shape and torch.allclose(
            made, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max())
        )
        if not is_same:
            raise UnsupportedModuleError(
                f"{self._reader}: {self._name} takes samples together: {_OTHER_BATCH} of them give "
                "other outputs than each of them alone."
            )


def _with_fixed_kernels(model: nn.Module) -> nn.Module:
    """A copy in inference mode; kernels that are built from parameters are built once.

    Traced, the making of an orthogonal kernel is some fifty operations a layer.
    """
    clone = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
    for module in clone.modules():
        if isinstance(module, _BUILT):
            with torch.no_grad():
                kernel = module.weight()
            setattr(module, "weight", partial(_same, kernel))  # noqa: B010 - it was a method
    return clone


def _same(kernel: Tensor) -> Tensor:
    return kernel


def _require_samples_first(node: Node, start: Value) -> None:
    sizes = node.output.sizes
    # Where torch has fixed the length of the batch, such as for `len(inputs)`, it is a number.
    is_fitting = bool(sizes) and (
        sizes[0] == start.sizes[0] and all(isinstance(size, int) for size in sizes[1:])
    )
    if not is_fitting:
        raise node.refusal(
            f"makes a tensor of shape {node.output.shape} out of a batch of {start.shape[0]}; "
            "wanted the samples along the first axis everywhere"
        )


# --- From the trace to nodes -----------------------------------------------------------------


class _Nodes:
    """Makes nodes of the operations that depend on the model's input."""

    def __init__(
        self, read: Trace, model: nn.Module, wholes: Callable[[nn.Module], bool], reader: str
    ) -> None:
        self._read, self._model, self._wholes, self._reader = read, model, wholes, reader
        self._fixed, self._same = _FixedValues(read), _copies(read)
        self._uses = Counter(
            self._same.get(value, value)
            for values in (*(op.inputs for op in read.operations), read.outputs)
            for value in values
        )

    def __iter__(self) -> Iterator[Node]:
        depending = [
            operation
            for operation in self._read.operations
            if operation.output not in self._fixed and operation.output not in self._same
        ]
        at, group = 0, depending[:0]
        while at < len(depending):
            operation = depending[at]
            call = self._whole_call(operation)
            if operation.kind in _TO_NUMBERS:
                raise operation.refusal(
                    self._reader,
                    "what the model does depends on the numbers in a tensor, not only on shapes, "
                    "and cannot be read",
                )
            if call is not None:
                group = self._run_of(call, depending, at)
                yield self._whole(call, group)
            elif function := self._function_at(depending[at : at + _MOST_PARTS]):
                kind, group = function
                yield self._curve(kind, group)
            else:
                group = [operation]
                yield from self._plain(operation)
            at += len(group)

    def _whole_call(self, operation: Operation) -> str | None:
        """The run of a module that is taken whole, if the operation belongs to one."""
        return next((c for c in operation.calls if self._wholes(_module(self._model, c))), None)

    def _inputs(self, group: Sequence[Operation]) -> tuple[Value, ...]:
        """What operations take from outside, each value once."""
        inside = {value for operation in group for value in operation.outputs}
        taken = (self._same.get(v, v) for o in group for v in o.inputs if v not in self._fixed)
        return tuple(dict.fromkeys(value for value in taken if value not in inside))

    def _whole(self, call: str, group: Sequence[Operation]) -> Node:
        module, path, last = _module(self._model, call), call.partition("@")[0], group[-1]
        inputs = self._inputs(group)
        if len(inputs) != 1 or not self._uses[last.output]:
            raise last.refusal(
                self._reader,
                f"{path} ({type(module).__name__}) takes {len(inputs)} values; wanted one tensor "
                "in and one tensor out",
            )
        kind = type(module).__name__
        return Node(path, kind, inputs, last.output, {}, module, module, last, self._reader)

    def _run_of(self, call: str, depending: Sequence[Operation], at: int) -> list[Operation]:
        """All operations of a run of a module, which stand together."""
        rest = islice(depending, at, None)
        return list(takewhile(lambda operation: self._whole_call(operation) == call, rest))

    def _function_at(self, operations: list[Operation]) -> tuple[str, list[Operation]] | None:
        """A function that torch.export takes apart, if these operations begin with one."""
        for kinds, (name, is_meant) in _TAKEN_APART.items():
            group = operations[: len(kinds)]
            if tuple(o.kind for o in group) != kinds or not is_meant(group):
                continue
            within = Counter(value for operation in group for value in operation.inputs)
            if all(self._uses[o.output] == within[o.output] for o in group[:-1]):
                return name, group
        return None

    def _curve(self, kind: str, group: Sequence[Operation]) -> Node:
        last, (start,) = group[-1], self._inputs(group)
        run = partial(_run_all, group, self._fixed, self._same)
        name = f"{last.path}.{kind}".lstrip(".")
        return Node(name, kind, (start,), last.output, {}, None, run, last, self._reader)

    def _plain(self, operation: Operation) -> Iterator[Node]:
        inputs = tuple(self._same.get(v, v) for v in operation.inputs if v not in self._fixed)
        arguments = _fill_arguments(operation, self._same, self._fixed)
        for number, output in enumerate(operation.outputs):
            if self._uses[output]:
                yield Node(
                    operation.name,
                    operation.kind,
                    inputs,
                    output,
                    arguments,
                    None,
                    partial(_run, operation, self._fixed, number),
                    operation,
                    self._reader,
                )


# Functions of one tensor that torch.export writes as several operations, and how they are known.
_TAKEN_APART: dict[tuple[str, ...], tuple[str, Callable[[Sequence[Operation]], bool]]] = {
    ("abs", "add", "div"): (
        "softsign",
        lambda o: (
            (o[1]["other"], o[1]["alpha"]) == (1, 1)
            and _takes(o[1], o[0].output)
            and _takes(o[2], o[0]["self"], o[1].output)
        ),
    ),
    ("tanh", "sub"): (
        "tanhshrink",
        lambda o: o[1]["alpha"] == 1 and _takes(o[1], o[0]["self"], o[0].output),
    ),
    ("abs", "gt", "sign", "mul", "sub", "mul", "where"): (
        "softshrink",
        lambda o: (
            o[1]["other"] == o[3]["other"]
            and (o[4]["alpha"], o[5]["other"]) == (1, 0)
            and _takes(o[1], o[0].output)
            and _takes(o[2], o[0]["self"])
            and _takes(o[3], o[2].output)
            and _takes(o[4], o[0]["self"], o[3].output)
            and _takes(o[5], o[0]["self"])
            and _takes(o[6], o[1].output, o[4].output, o[5].output)
        ),
    ),
}


_MOST_PARTS = max(map(len, _TAKEN_APART))


def _takes(operation: Operation, *values: Value) -> bool:
    return operation.inputs == values


def _copies(read: Trace) -> dict[Value, Value]:
    """Values that are the same as another one, each with that one."""
    same: dict[Value, Value] = {}
    for operation in read.operations:
        if operation.inputs and _is_copy(operation):
            source = operation.inputs[0]
            same[operation.output] = same.get(source, source)
    return same


def _is_copy(operation: Operation) -> bool:
    source, output = operation.inputs[0], operation.output
    if source.sizes != output.sizes or source.dtype != output.dtype or source.dtype is None:
        return False
    # A slice or a new shape of all entries that has the same sizes moves nothing.
    return operation.kind in _COPIES or operation.kind in ("slice", "view", "to")


def _module(model: nn.Module, call: str) -> nn.Module:
    return model.get_submodule(call.partition("@")[0])


def _fill_arguments(
    operation: Operation, same: Mapping[Value, Value], fixed: "_FixedValues"
) -> Any:
    """Arguments with tensors and numbers in the place of fixed values, for one sample."""

    def fill(part: Any) -> Any:
        if isinstance(part, Value):
            return fixed(1)[part] if part in fixed else same.get(part, part)
        return [fill(each) for each in part] if isinstance(part, (list, tuple)) else part

    return MappingProxyType({name: fill(part) for name, part in operation.arguments.items()})


def _run(operation: Operation, fixed: "_FixedValues", number: int, *inputs: Tensor) -> Tensor:
    """An operation on batches of any length, one tensor for each value that is not fixed."""
    known, given = fixed(len(inputs[0])), iter(inputs)

    def fill(part: Any) -> Any:
        if isinstance(part, Value):
            return known[part] if part in fixed else next(given)
        return [fill(each) for each in part] if isinstance(part, (list, tuple)) else part

    arguments = {name: fill(part) for name, part in operation.arguments.items()}
    match operation.kind:
        case "view":
            # Not every tensor that comes here lies in memory as it did when it was traced, and the
            # length of the batch may have been fixed.
            given_shape = (len(inputs[0]), *sample_shape(operation.output))
            return torch.reshape(inputs[0], given_shape)
        case "batch_norm":
            # The exported operation has no rule for batches of gradients.
            return functional.batch_norm(
                arguments["input"],
                arguments["running_mean"],
                arguments["running_var"],
                arguments["weight"],
                arguments["bias"],
                eps=arguments["eps"],
            )
    result = operation.target(**arguments)
    outputs: Tensor = result if isinstance(result, Tensor) else result[number]
    return outputs


def _run_all(
    group: Sequence[Operation],
    fixed: "_FixedValues",
    same: Mapping[Value, Value],
    start: Tensor,
) -> Tensor:
    """Operations one after the other, from one tensor to what the last of them makes."""
    known: dict[Value, Tensor] = {}
    for operation in group:
        values = (same.get(v, v) for v in operation.inputs if v not in fixed)
        made = _run(operation, fixed, 0, *(known.get(value, start) for value in values))
        known[operation.output] = made
    return known[group[-1].output]


class _FixedValues:
    """Parameters, and what depends on the length of a batch only, for batches of any length."""

    def __init__(self, read: Trace) -> None:
        self._arrays = read.arrays
        self._start = read.inputs[0]
        self._values = set(read.arrays)
        self._operations: list[Operation] = []
        for operation in read.operations:
            if operation.kind == "sym_size" or (
                self._values.issuperset(operation.inputs) and not is_random(operation)
            ):
                self._operations.append(operation)
                self._values.update(operation.outputs)
        self._known: dict[int, Mapping[Value, Any]] = {}

    def __contains__(self, value: Value) -> bool:
        return value in self._values

    def __call__(self, length: int) -> Mapping[Value, Any]:
        """All of them for a batch of some samples."""
        if not self._operations:
            return self._arrays
        if length not in self._known:
            known: dict[Value, Any] = dict(self._arrays)
            for operation in self._operations:
                if operation.kind == "sym_size":
                    value, axis = operation["self"], operation["dim"]
                    is_batch = value.sizes[axis] == self._start.sizes[0]
                    known[operation.output] = length if is_batch else value.shape[axis]
                else:
                    known.update(zip(operation.outputs, operation.run(known), strict=False))
            self._known[length] = known
        return self._known[length]
