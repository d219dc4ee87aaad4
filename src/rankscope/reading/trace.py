"""What a module computes, operation by operation: the one way in which a forward pass is read.

`trace(module, example)` runs `torch.export` and gives an immutable `Trace`: named values with
their shapes, and ATen operations in order with the module and the parameters they come from.
Diagrams, costs, Lipschitz and interval bounds and the compression's record of where a weight is
used are interpreters of it; none of them looks into `forward` by itself.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from rankscope.errors import UnsupportedModuleError
from rankscope.reading.exporting import Example, Shape, exported

# Operations that only assert what the export already knows.
_CHECKS = frozenset(
    ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size")
)
# Names that the export gives to operations that have a better known one.
_KINDS = {
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_to_copy": "to",
    "_unsafe_view": "view",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
}


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor, or a number such as the length of a batch, that a forward pass makes or takes.

    Two values are the same only if they are one object.

    Args:
        name: unique in its trace.
        shape: with the sizes of the example; empty for a number.
        dtype: of a tensor; None for a number.
        sizes: the same as `shape`, with a name such as "s0" where every size is allowed.
        number: of a number, what it is for the example.
    """

    name: str
    shape: Shape
    dtype: torch.dtype | None
    sizes: tuple[int | str, ...]
    number: int | float | bool | None = None

    def __repr__(self) -> str:
        kind = "number" if self.dtype is None else str(self.dtype).removeprefix("torch.")
        return f"{self.name}: {kind}[{', '.join(map(str, self.sizes))}]"


@dataclass(frozen=True, eq=False)
class Operation:
    """One ATen operation.

    Args:
        name: unique in its trace: the path of its module and the kind.
        kind: name of the operation without its overload, such as "conv2d" or "add".
        target: the operation itself, called by `run`.
        arguments: by the names of its signature, defaults filled in; a `Value` stands for what is
            computed, alone or in lists.
        outputs: what it makes; several of one call stand side by side.
        path: of the innermost module that it happens in, "" for the outermost.
        calls: the runs of modules that it happens in, from the outside: paths, with "@1" behind the
            path of a module that runs a second time.
    """

    name: str
    kind: str
    target: Callable[..., Any]
    arguments: Mapping[str, Any]
    outputs: tuple[Value, ...]
    path: str = ""
    calls: tuple[str, ...] = ()

    @property
    def output(self) -> Value:
        """What it makes, or the first of several."""
        return self.outputs[0]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values that it takes, in order; one that is taken twice stands twice."""
        return tuple(_values(self.arguments.values()))

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def run(self, known: Mapping[Value, Any]) -> tuple[Any, ...]:
        """Compute its outputs from the values it takes."""
        given = {name: substitute(part, known) for name, part in self.arguments.items()}
        result = self.target(**given) if _takes_names(self.target) else self.target(*given.values())
        return (
            tuple(result)
            if len(self.outputs) > 1 or isinstance(result, (tuple, list))
            else (result,)
        )

    def refusal(self, reader: str, reason: str) -> UnsupportedModuleError:
        """What an interpreter raises that has no rule for this operation.

        Args:
            reader: who refuses, as a user calls it.
            reason: why, and what to do.
        """
        where = f"in {self.path}" if self.path else "in the outermost module"
        return UnsupportedModuleError(f"{reader}: {self.kind} ({where}): {reason}.")


@dataclass(frozen=True, eq=False)
class Trace:
    """What a module computes in inference mode, as operations in order.

    Args:
        name: of the module's class.
        inputs: tensors that are given.
        arrays: parameters, buffers and constants that are used, each with its tensor; a value's
            name is that of the parameter or buffer.
        operations: in the order in which they run.
        outputs: the tensors that come out, in order.
        modules: class name of every module that runs, by path.
        has_free_batch: whether the first size of the inputs may be any other.
    """

    name: str
    inputs: tuple[Value, ...]
    arrays: Mapping[Value, Tensor]
    operations: tuple[Operation, ...]
    outputs: tuple[Value, ...]
    modules: Mapping[str, str]
    has_free_batch: bool
    _structure: Any = field(repr=False)
    _flatten: Callable[..., list[Any]] = field(repr=False)

    def run(self, *arguments: Any, **options: Any) -> Any:
        """What the module gives, in the same structure, computed operation by operation."""
        known = self.inputs_of(*arguments, **options)
        for _, made in self.walk(known):
            known.update(made)
        return self.restore([known[value] for value in self.outputs])

    def inputs_of(self, *arguments: Any, **options: Any) -> dict[Value, Any]:
        """The tensors of a call's arguments, each with the value that it is."""
        return dict(zip(self.inputs, self._flatten(*arguments, **options), strict=True))

    def walk(
        self, inputs: Mapping[Value, Tensor]
    ) -> Iterator[tuple[Operation, Mapping[Value, Any]]]:
        """Run the operations one by one; a value is forgotten after its last use.

        Yields:
            Each operation with the values that it made.
        """
        uses = self.num_uses()
        known: dict[Value, Any] = {**self.arrays, **inputs}
        for operation in self.operations:
            results = operation.run(known)
            made = dict(zip(operation.outputs, results, strict=False))
            for value in operation.inputs:
                uses[value] -= 1
                if not uses[value]:
                    known.pop(value, None)
            known.update({value: made[value] for value in made if uses.get(value)})
            yield operation, made

    def restore(self, outputs: Sequence[Any]) -> Any:
        """Put tensors, one for each of `outputs`, into the structure that the module returns."""
        return self._structure(outputs)

    def num_uses(self) -> dict[Value, int]:
        """How often each value is taken, by operations and as an output."""
        uses: dict[Value, int] = {}
        for value in (*(v for op in self.operations for v in op.inputs), *self.outputs):
            uses[value] = uses.get(value, 0) + 1
        return uses

    def at_example(self) -> "Trace":
        """The same for the sizes of the example only.

        Numbers are filled in; what depends on no input and no parameter is computed once and
        becomes an array.
        """
        return _folded(
            self, {v: a for v, a in self.arrays.items() if not _is_parameter(a)}, fills_numbers=True
        )

    def constants_folded(self) -> "Trace":
        """The same with everything that depends on no input computed once, sizes still free.

        Weights that are made of parameters, such as an orthogonal kernel, become arrays.
        """
        return _folded(self, dict(self.arrays), fills_numbers=False)


def trace(module: nn.Module, example: Example, *, free_batch: bool = True) -> Trace:
    """Read what a module computes in inference mode.

    The first size of every input may be any other afterwards where the module allows it
    (`has_free_batch`); all other sizes are those of the example.

    Args:
        module: is not changed.
        example: a tensor, a tuple of what `forward` takes, a dict of it by name, or shapes (a tuple
            of integers for one input, a tuple of such for several) in the module's precision.
        free_batch: False fixes all sizes to those of the example, which takes down to a third of
            the time.

    Example:
        >>> made = trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (2, 4))
        >>> [(operation.kind, operation.path) for operation in made.operations]
        [('linear', '0'), ('relu', '1')]

    Raises:
        UnsupportedModuleError: if torch cannot export it, with torch's reason.
        SizeError: if the module does not take the example.
        RequestError: if the example is none of these.
    """
    program, is_free = exported(module, example, free_batch=free_batch)
    return _read(type(module).__name__, program, is_free=is_free)


def substitute(part: Any, known: Mapping[Value, Any]) -> Any:
    """The same arguments with numbers and tensors in the place of values."""
    match part:
        case Value():
            return known[part]
        case list() | tuple():
            return type(part)(substitute(each, known) for each in part)
        case _:
            return part


def _values(parts: Any) -> Iterator[Value]:
    for part in parts:
        if isinstance(part, Value):
            yield part
        elif isinstance(part, (list, tuple)):
            yield from _values(part)


def _takes_names(target: Callable[..., Any]) -> bool:
    return isinstance(target, torch._ops.OpOverload)


# --- From the exported program to a trace --------------------------------------------------------


def _read(name: str, program: ExportedProgram, *, is_free: bool) -> Trace:
    nodes: dict[fx.Node, Any] = {}
    arrays: dict[Value, Tensor] = {}
    leaves: list[Value | None] = []
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    operations: list[Operation] = []
    names: dict[str, int] = {}
    outputs: list[Any] = []
    for node in program.graph.nodes:
        match node.op:
            case "placeholder":
                spec = specs[node.name]
                if spec.kind is InputKind.USER_INPUT:
                    nodes[node] = value = _value(node.name, node.meta.get("val"))
                    leaves.append(value if value.dtype is not None else None)
                else:
                    nodes[node] = value = _value(str(spec.target), node.meta["val"])
                    arrays[value] = _array(program, str(spec.target))
            case "call_function":
                operation = _operation(node, nodes, names)
                if operation is not None:
                    operations.append(operation)
            case "output":
                made = _replaced(list(node.args[0]), nodes)
                outputs = [
                    part
                    for part, spec in zip(made, program.graph_signature.output_specs, strict=True)
                    if spec.kind is OutputKind.USER_OUTPUT
                ]
            case _:
                raise UnsupportedModuleError(
                    f"trace: {name} has the part {node.target!r} of torch.export ({node.op}), such "
                    "as a branch or a loop that depends on numbers; there is no rule for it."
                )
    kept, used = _needed(operations, outputs)
    return Trace(
        name,
        tuple(value for value in leaves if value is not None),
        MappingProxyType({v: array for v, array in arrays.items() if v in used}),
        tuple(kept),
        tuple(part for part in outputs if isinstance(part, Value)),
        MappingProxyType(_modules(program)),
        is_free and any(isinstance(size, str) for v in leaves if v for size in v.sizes),
        _restoring(program, outputs),
        _flattening(program, leaves),
    )


def _value(name: str, example: Any) -> Value:
    """A value as it is for the example."""
    if isinstance(example, Tensor):
        shape = tuple(_hint(size) for size in example.shape)
        sizes = tuple(_size(size) for size in example.shape)
        return Value(name, shape, example.dtype, sizes)
    return Value(name, (), None, (), _hint(example))


def _size(size: int | torch.SymInt) -> int | str:
    """A number if the size is fixed, by the module or by torch; else its name."""
    fixed = size if isinstance(size, int) else size.node.maybe_as_int()
    return str(size) if fixed is None else int(fixed)


def _hint(number: Any) -> Any:
    """What a symbolic number is for the example."""
    if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return number.node.hint
    return number


def _array(program: ExportedProgram, target: str) -> Tensor:
    array: Tensor = (
        program.state_dict[target] if target in program.state_dict else program.constants[target]
    )
    return array


def _operation(node: fx.Node, nodes: dict[fx.Node, Any], names: dict[str, int]) -> Operation | None:
    if node.target is operator.getitem:
        source, place = node.args
        if isinstance(source, fx.Node) and isinstance(nodes.get(source), tuple):
            nodes[node] = nodes[source][place]
            return None
    if node.target is torch.ops.aten.alias.default:  # The same tensor under another name.
        nodes[node] = nodes[node.all_input_nodes[0]]
        return None
    assert callable(node.target), "call_function has a function"
    kind = _kind(node.target)
    if kind in _CHECKS:
        return None
    if not isinstance(node.target, torch._ops.OpOverload) and any(
        isinstance(part, fx.Node) and part.op == "get_attr" for part in node.args
    ):
        raise UnsupportedModuleError(
            f"trace: {kind} in {_path(node) or 'the outermost module'} branches or loops over "
            "numbers; there is no rule for it."
        )
    example = node.meta.get("val")
    name = _unique(f"{_path(node)}.{kind}".lstrip("."), names)
    if isinstance(example, (tuple, list)):
        outputs = tuple(_value(f"{name}:{k}", part) for k, part in enumerate(example))
        nodes[node] = outputs
    else:
        outputs = (_value(name, example),)
        nodes[node] = outputs[0]
    arguments = MappingProxyType(_arguments(node, nodes))
    return Operation(name, kind, node.target, arguments, outputs, _path(node), _calls(node))


def _kind(target: Any) -> str:
    name = target.overloadpacket.__name__ if hasattr(target, "overloadpacket") else target.__name__
    return _KINDS.get(str(name), str(name))


def _unique(name: str, names: dict[str, int]) -> str:
    names[name] = names.get(name, 0) + 1
    return name if names[name] == 1 else f"{name}_{names[name]}"


def _path(node: fx.Node) -> str:
    stack = _stack(node)
    return stack[-1][0] if stack else ""


def _calls(node: fx.Node) -> tuple[str, ...]:
    marks = (
        (path, key.rpartition("@")[2] if "@" in key else "")
        for key, (path, _) in (node.meta.get("nn_module_stack") or {}).items()
        if not key.startswith("_empty")
    )
    return tuple(f"{path}@{mark}" if mark else str(path) for path, mark in marks)


def _stack(node: fx.Node) -> list[tuple[str, str]]:
    """The modules around a node, from the outside, as (path, class name)."""
    stack = []
    for key, (path, made_by) in (node.meta.get("nn_module_stack") or {}).items():
        if not key.startswith("_empty"):  # torch's mark for nodes that it added itself
            class_name = made_by.__name__ if isinstance(made_by, type) else str(made_by)
            # A module that runs a second time has "@1" behind its path.
            stack.append((str(path).split("@")[0], class_name.rpartition(".")[2]))
    return stack


def _modules(program: ExportedProgram) -> dict[str, str]:
    return {path: name for node in program.graph.nodes for path, name in _stack(node)}


def _arguments(node: fx.Node, nodes: Mapping[fx.Node, Any]) -> dict[str, Any]:
    """Arguments by the names of the signature, with its defaults."""
    given = [_replaced(part, nodes) for part in node.args]
    named = {name: _replaced(part, nodes) for name, part in node.kwargs.items()}
    if not isinstance(node.target, torch._ops.OpOverload):
        return {str(position): part for position, part in enumerate(given)} | named
    signature = node.target._schema.arguments
    bound = dict(zip((argument.name for argument in signature), given, strict=False)) | named
    return {
        argument.name: bound.get(
            argument.name, argument.default_value if argument.has_default_value() else None
        )
        for argument in signature
    }


def _replaced(part: Any, nodes: Mapping[fx.Node, Any]) -> Any:
    """The same arguments with values in the place of nodes."""
    if isinstance(part, fx.Node):
        return nodes[part]
    if isinstance(part, (list, tuple)):
        return [_replaced(each, nodes) for each in part]
    return part


def _needed(
    operations: Sequence[Operation], outputs: Sequence[Any]
) -> tuple[list[Operation], set[Value]]:
    """The operations that the outputs depend on, and all values that are used."""
    used = set(_values(outputs))
    kept: list[Operation] = []
    for operation in reversed(operations):
        if used.intersection(operation.outputs):
            used.update(operation.inputs)
            kept.append(operation)
    return kept[::-1], used


def _restoring(program: ExportedProgram, outputs: list[Any]) -> Callable[[Sequence[Any]], Any]:
    """Puts tensors back into the structure of the module's result."""
    places = [isinstance(part, Value) for part in outputs]

    def restore(tensors: Sequence[Any]) -> Any:
        given = iter(tensors)
        flat = [
            next(given) if is_value else part
            for is_value, part in zip(places, outputs, strict=True)
        ]
        return program.call_spec.out_spec.unflatten(flat)

    return restore


def _flattening(
    program: ExportedProgram, leaves: Sequence[Value | None]
) -> Callable[..., list[Any]]:
    """Takes the tensors out of a call's arguments."""

    def flatten(*arguments: Any, **options: Any) -> list[Any]:
        flat = program.call_spec.in_spec.flatten_up_to((arguments, options))
        return [part for part, value in zip(flat, leaves, strict=True) if value is not None]

    return flatten


# --- Constants -----------------------------------------------------------------------------------


# Their results depend on the shape of what they take, not on its numbers.
_SHAPE_ONLY = frozenset(
    (
        "empty_like",
        "full_like",
        "new_empty",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones_like",
        "zeros_like",
    )
)


def _folded(whole: Trace, known: dict[Value, Any], *, fills_numbers: bool) -> Trace:
    """Compute what depends on known values only.

    Args:
        whole: all operations.
        known: arrays that are fixed.
        fills_numbers: whether numbers are those of the example from now on.
    """
    operations: list[Operation] = []
    for operation in whole.operations:
        if fills_numbers and operation.output.dtype is None:
            known[operation.output] = operation.output.number
        elif _is_known(operation, known, is_fixed=fills_numbers):
            with torch.no_grad():
                known.update(
                    zip(operation.outputs, operation.run(_shapes(known, operation)), strict=False)
                )
        else:
            operations.append(_with_numbers(operation, known))
    kept, used = _needed(operations, whole.outputs)
    arrays = {value: array for value, array in {**whole.arrays, **known}.items() if value in used}
    return replace(
        whole,
        arrays=MappingProxyType(arrays),
        operations=tuple(kept),
        has_free_batch=whole.has_free_batch and not fills_numbers,
    )


def _is_known(operation: Operation, known: Mapping[Value, Any], *, is_fixed: bool) -> bool:
    """Whether its results can be computed from known values; `is_fixed`: for these sizes only."""
    if is_random(operation):
        return False
    needed = operation.inputs
    has_size = is_fixed or all(isinstance(size, int) for size in operation.output.sizes)
    if operation.kind in _SHAPE_ONLY and has_size:
        needed = tuple(value for value in needed if value is not operation["self"])
    return all(value in known for value in needed)


def _shapes(known: Mapping[Value, Any], operation: Operation) -> Mapping[Value, Any]:
    """The known values, and any numbers in the shape of what only gives its shape."""
    if operation.kind not in _SHAPE_ONLY:
        return known
    like = operation["self"]
    return {like: torch.empty(like.shape, dtype=like.dtype), **known}


def _is_parameter(array: Tensor) -> bool:
    return isinstance(array, nn.Parameter)


def is_random(operation: Operation) -> bool:
    """Whether two runs of it differ."""
    tags = getattr(operation.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _with_numbers(operation: Operation, known: Mapping[Value, Any]) -> Operation:
    numbers = {v: known[v] for v in operation.inputs if v.dtype is None and v in known}
    if not numbers:
        return operation

    def filled(part: Any) -> Any:
        if isinstance(part, Value):
            return numbers.get(part, part)
        return [filled(each) for each in part] if isinstance(part, (list, tuple)) else part

    arguments = {name: filled(part) for name, part in operation.arguments.items()}
    return replace(operation, arguments=MappingProxyType(arguments))
