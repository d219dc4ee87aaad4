"""A model as operations on samples, read from its trace.

The trace says what happens to a batch. Certificates speak about one sample, so that here the first
axis of every value is that of the samples and nothing mixes them; weights that are computed from
parameters are computed once, in the model's own floats; layers whose parts say less than the whole
are one operation. A model that fixes the length of a batch, or moves the samples to another axis,
is traced with one sample, and its operations are mapped over samples. Attention is taken apart into
scores, weights and sums.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, takewhile
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.errors import SizeError, UnsupportedModuleError
from rankscope.reading.exporting import Shape
from rankscope.reading.trace import Operation, Trace, Value, trace
from rankscope.robust.fixed_values import FixedValues, fill_arguments, run_all, run_one
from rankscope.robust.norm_preserving import NormalizedLinear, OrthogonalLinear
from rankscope.robust.operator_norms import ORTHOGONAL
from rankscope.robust.orthogonal import with_kernel

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

    @property
    def arithmetic(self) -> str:
        """The floating-point formats that the model computes in, by name."""
        values = (self.input, *(node.output for node in self.nodes))
        dtypes = {value.dtype for value in values if value.dtype is not None}
        floats = (str(dtype) for dtype in dtypes if dtype.is_floating_point)
        return ", ".join(sorted(name.removeprefix("torch.") for name in floats))

    def run(self, inputs: Tensor) -> Tensor:
        """What the model gives for a batch."""
        known = {self.input: inputs}
        for node in self.nodes:
            known[node.output] = node.run(*(known[v] for v in node.inputs))
        return known[self.output]

    def until(self, count: int) -> "Graph":
        """The first operations only, up to the output of the last of them."""
        return Graph(self.input, self.nodes[:count], self.nodes[count - 1].output)

    def needed(self) -> "Graph":
        """Only the operations that the output depends on."""
        wanted, kept = {self.output}, []
        for node in reversed(self.nodes):
            if node.output in wanted:
                kept.append(node)
                wanted.update(node.inputs)
        return Graph(self.input, tuple(reversed(kept)), self.output)


def sample_shape(value: Value) -> Shape:
    """The shape of one sample of a value."""
    return value.shape[1:]


class Reading:
    """A model's graph, and the model itself to compare it with.

    Args:
        model: takes one batch and gives one batch; it is not changed.
        input_shape: of one sample.
        wholes: whether a module is one operation.
        precise: whether operations run in float64, on weights as the model's own floats made them;
            values keep the dtype that they have in the model.
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
        precise: bool = False,
        reader: str,
    ) -> None:
        self._reader, self._name = reader, type(model).__name__
        self._model = _with_fixed_kernels(model)
        self._wholes, self._precise = wholes, precise
        like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
        generator = torch.Generator().manual_seed(0)
        self._batches = [
            torch.rand(size, *input_shape, generator=generator).to(like)
            for size in (_BATCH, _OTHER_BATCH)
        ]
        self._read(_BATCH)

    def _read(self, length: int) -> None:
        """Trace the model on a batch; a length of 1 is fixed, and operations are mapped."""
        inputs = self._batches[0][:length]
        try:
            whole = trace(self._model, inputs)
        except SizeError as error:
            raise SizeError(
                f"{self._name} cannot be run on inputs of shape {tuple(inputs.shape[1:])}: "
                f"{str(error).rpartition(': ')[2]}"
            ) from error
        self._trace, self._is_mapped = whole.constants_folded(), length == 1
        self.nodes = self._make_nodes(precise=False)

    def _make_nodes(self, *, precise: bool) -> tuple[Node, ...]:
        made = _Nodes(
            self._trace,
            self._model,
            self._wholes,
            self._reader,
            precise=precise,
            is_mapped=self._is_mapped,
        )
        nodes = expanded_attention(tuple(made))
        return mapped_over_samples(nodes) if self._is_mapped else nodes

    def graph(self) -> Graph:
        """The graph, if it computes for each sample alone what the model computes.

        Raises:
            UnsupportedModuleError: if there is not one output that depends on the input, or
                samples are not along the first axis everywhere, or they are taken together.
        """
        self._output()
        try:
            return self._checked_graph()
        except UnsupportedModuleError:
            # The length of the batch may be written into a shape, or samples stand along another
            # axis for a while: with one sample at a time neither is seen.
            if self._is_mapped:
                raise
        self._read(1)
        return self._checked_graph()

    def _output(self) -> Value:
        """The one tensor that comes out."""
        (start,), outputs = self._trace.inputs, self._trace.outputs
        made = {start, *(node.output for node in self.nodes)}
        same = _copies(self._trace)
        output = same.get(outputs[0], outputs[0]) if len(outputs) == 1 else None
        if output is None or output not in made:
            raise UnsupportedModuleError(
                f"{self._reader}: {self._name} must give one tensor that depends on its input, got "
                f"{len(outputs)} tensors, of which {len(made.intersection(outputs))} depend on it."
            )
        return output

    def _checked_graph(self) -> Graph:
        (start,) = self._trace.inputs
        outputs = self._trace.outputs
        if self._is_mapped and outputs[0].shape[:1] != (1,):
            raise UnsupportedModuleError(
                f"{self._reader}: {self._name} makes a tensor of shape {outputs[0].shape} out of "
                "a batch of 1; wanted one row for each sample."
            )
        output = self._output()
        for node in () if self._is_mapped else self.nodes:
            _require_samples_first(node, start)
        self._require_equal(Graph(start, self.nodes, output))
        nodes = self._make_nodes(precise=True) if self._precise else self.nodes
        return Graph(start, nodes, output)

    def _require_equal(self, graph: Graph) -> None:
        """Run the graph on other inputs, and the model on each of them alone."""
        inputs = self._batches[1]
        try:
            with torch.no_grad():
                made = graph.run(inputs)
                expected = torch.cat([self._model(sample[None]) for sample in inputs])
                together = self._model(inputs) if self._is_mapped else made
        except (RuntimeError, IndexError, ValueError) as error:
            raise UnsupportedModuleError(
                f"{self._reader}: {self._name} was read with {len(self._batches[0])} samples or 1, "
                f"and cannot be run with {_OTHER_BATCH} ({error})."
            ) from error
        # Rounding differs with the size of a batch, and networks amplify it.
        tolerance = torch.finfo(expected.dtype).eps ** 0.5
        slack = tolerance * float(expected.abs().max())
        is_same = all(
            output.shape == expected.shape
            and torch.allclose(output, expected, rtol=tolerance, atol=slack)
            for output in (made, together)
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


def _in_float64(module: nn.Module) -> nn.Module:
    """A module taken whole that computes in float64, with the weights of its own floats."""
    clone = (
        with_kernel(module, Tensor.double) if isinstance(module, _BUILT) else copy.deepcopy(module)
    )
    return clone.double().eval().requires_grad_(requires_grad=False)


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
        self,
        read: Trace,
        model: nn.Module,
        wholes: Callable[[nn.Module], bool],
        reader: str,
        *,
        precise: bool,
        is_mapped: bool,
    ) -> None:
        self._read, self._model, self._wholes, self._reader = read, model, wholes, reader
        self._precise = precise
        self._fixed = FixedValues(read, precise=precise, is_mapped=is_mapped)
        self._same = _copies(read)
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
        if self._precise:
            module = _in_float64(module)
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
        run = partial(run_all, group, self._fixed, self._same)
        name = f"{last.path}.{kind}".lstrip(".")
        return Node(name, kind, (start,), last.output, {}, None, run, last, self._reader)

    def _plain(self, operation: Operation) -> Iterator[Node]:
        inputs = tuple(self._same.get(v, v) for v in operation.inputs if v not in self._fixed)
        arguments = fill_arguments(operation, self._same, self._fixed)
        for number, output in enumerate(operation.outputs):
            if self._uses[output]:
                yield Node(
                    operation.name,
                    operation.kind,
                    inputs,
                    output,
                    arguments,
                    None,
                    partial(run_one, operation, self._fixed, number),
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


# --- One sample at a time ---------------------------------------------------------------------


def mapped_over_samples(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Operations on a batch of one sample as operations on every sample of a batch.

    An axis for the samples comes before all others; the first one of a value, of length 1, is left
    out where there is one.
    """
    renamed: dict[Value, Value] = {}

    def renaming(value: Value) -> Value:
        if value.shape[:1] == (1,):
            return value
        if value not in renamed:
            shape, sizes = (1, *value.shape), (1, *value.sizes)
            renamed[value] = replace(value, shape=shape, sizes=sizes)
        return renamed[value]

    return tuple(
        replace(
            node,
            inputs=tuple(map(renaming, node.inputs)),
            output=renaming(node.output),
            function=partial(_one_by_one, node),
        )
        for node in nodes
    )


def _one_by_one(node: Node, *inputs: Tensor) -> Tensor:
    """An operation on one sample, for each sample; the values are those of the trace."""
    is_left_out = [value.shape[:1] == (1,) for value in (*node.inputs, node.output)]

    def of_one(*samples: Tensor) -> Tensor:
        given = zip(samples, is_left_out, strict=False)
        made = node.run(*(sample[None] if is_left else sample for sample, is_left in given))
        return made[0] if is_left_out[-1] else made

    made: Tensor = torch.func.vmap(of_one)(*inputs)
    return made


# --- Attention, taken apart -------------------------------------------------------------------


def expanded_attention(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The same operations with scores, their softmax and weighted sums for every fused attention.

    Real numbers are the same; rounding of a fused kernel is counted with that of the parts.
    """
    parts: list[Node] = []
    for node in nodes:
        parts += _attention_parts(node) if node.kind == _ATTENTION else [node]
    return tuple(parts)


_ATTENTION = "scaled_dot_product_attention"


def _attention_parts(node: Node) -> list[Node]:
    query, key, value = (node[name] for name in ("query", "key", "value"))
    mask = node["attn_mask"]
    wanted = "queries, keys and values that depend on the input, and a mask that does not"
    if not all(isinstance(part, Value) for part in (query, key, value)) or isinstance(mask, Value):
        raise node.refusal(f"wanted {wanted}")
    if node.arguments.get("enable_gqa"):
        raise node.refusal("queries that share keys are read only if the model repeats the keys")
    if node["dropout_p"]:
        raise node.refusal("it is random in inference mode")
    scale = node.arguments.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    if node["is_causal"]:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    shape = (*query.shape[:-1], key.shape[-2])
    sizes = (*query.sizes[:-1], key.sizes[-2])
    scores, weights = (
        Value(f"{node.output.name}.{name}", shape, query.dtype, sizes)
        for name in ("scores", "weights")
    )
    steps: list[tuple[str, tuple[Value, ...], Value, Callable[..., Tensor]]] = [
        ("attention_scores", (query, key), scores, partial(_scores, scale)),
        ("attention_weights", (scores,), weights, partial(attention_weights, mask)),
        ("attention_sums", (weights, value), node.output, torch.matmul),
    ]
    arguments = MappingProxyType({"mask": mask, "dim": -1, "scale": scale})
    return [
        replace(
            node,
            name=f"{node.name}.{kind}",
            kind=kind,
            inputs=inputs,
            output=output,
            arguments=arguments,
            function=function,
        )
        for kind, inputs, output, function in steps
    ]


def _scores(scale: float, query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-1, -2) * scale


def attention_weights(mask: Tensor | None, scores: Tensor) -> Tensor:
    """The softmax of scores, where attention may look; zero where it may not."""
    if mask is None:
        return torch.softmax(scores, dim=-1)
    if mask.dtype is torch.bool:
        return torch.softmax(torch.where(mask, scores, -math.inf), dim=-1)
    return torch.softmax(scores + mask.to(scores), dim=-1)
