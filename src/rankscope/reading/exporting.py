"""The program that `torch.export` makes of a module and an example, or a refusal."""

import inspect
import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.nn.modules import transformer
from torch.nn.utils.rnn import PackedSequence

from rankscope.errors import RequestError, SizeError, UnsupportedModuleError
from rankscope.modes import inference

Shape = tuple[int, ...]
Example = Tensor | Shape | Sequence[Any] | Mapping[str, Any]

log = logging.getLogger(__name__)


def exported(
    module: nn.Module, example: Example, *, free_batch: bool = True
) -> tuple[ExportedProgram, bool]:
    """The program that torch exports of a module, and whether its batch is free.

    Args:
        module: is not changed, and is exported in inference mode.
        example: as in `trace`.
        free_batch: as in `trace`.

    Raises:
        UnsupportedModuleError: if torch cannot export it, with torch's reason.
        SizeError: if the module does not take the example.
        RequestError: if the example is none of these.
    """
    arguments, options = _call_of(module, example)
    if _is_shapes(example) and not _takes(module, arguments):
        # Tables are looked up by integers; 0 and 1 are in every table.
        integers = tuple(part.round().long() for part in arguments)
        arguments = integers if _takes(module, integers) else arguments
    free = _free_sizes(module, arguments, options)
    with inference(module), torch.no_grad(), _quiet(), _masks_as_they_are(), _no_cache(module):
        if free_batch:
            try:
                return _export(module, arguments, options, free), True
            except Exception as error:  # noqa: BLE001 - torch raises many kinds; the next says why
                log.debug("no free batch: %s", error)
        try:
            return _export(module, arguments, options, None), False
        except Exception as error:
            raise _refused(module, arguments, options, error) from error


def _call_of(module: nn.Module, example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of `forward`."""
    if isinstance(example, Tensor):
        return (example,), {}
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)) and example:
        if all(isinstance(size, int) for size in example):
            shape: Shape = tuple(int(size) for size in example)
            return (_random(module, shape),), {}
        parts: Sequence[Any] = example
        return tuple(_random(module, tuple(p)) if _is_shape(p) else p for p in parts), {}
    raise RequestError(
        "trace: the example must be a tensor, a tuple or a dict of tensors, or shapes; got "
        f"{type(example).__name__}."
    )


def _is_shape(part: object) -> bool:
    return (
        isinstance(part, (tuple, list))
        and bool(part)
        and all(isinstance(size, int) for size in part)
    )


def _is_shapes(example: Example) -> bool:
    is_list = isinstance(example, (tuple, list))
    return is_list and (_is_shape(example) or all(_is_shape(part) for part in example))


def _takes(module: nn.Module, arguments: tuple[Any, ...]) -> bool:
    """Whether a module runs on some arguments."""
    with inference(module), torch.no_grad():
        try:
            module(*arguments)
        except Exception:  # noqa: BLE001 - a user's module may raise anything
            return False
    return True


def _random(module: nn.Module, shape: Shape) -> Tensor:
    for size in shape:
        if size < 1:
            raise SizeError(f"trace: an input of shape {shape} has a size below 1.")
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    return torch.rand(shape, generator=generator).to(like)


def _free_sizes(module: nn.Module, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """What may vary: the first size of every tensor, by the names of `forward` if there are any."""
    given = tuple(_free(part) for part in arguments)
    if not options:
        return given
    names = list(inspect.signature(module.forward).parameters)
    return dict(zip(names, given, strict=False)) | {n: _free(part) for n, part in options.items()}


def _free(part: object) -> Any:
    # torch fixes a size of 1, so that only larger ones may vary.
    if isinstance(part, Tensor):
        return {0: Dim.AUTO} if part.ndim and part.shape[0] > 1 else {}
    if isinstance(part, PackedSequence):
        raise UnsupportedModuleError(
            f"trace: torch cannot export a packed sequence, got one of {len(part.batch_sizes)} "
            "steps; pad it to a tensor."
        )
    if isinstance(part, (list, tuple)):
        return type(part)(_free(each) for each in part)
    if isinstance(part, Mapping):
        return {name: _free(each) for name, each in part.items()}
    return None


def _export(
    module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], free: Any
) -> ExportedProgram:
    program = torch.export.export(module, arguments, options, dynamic_shapes=free, strict=False)
    return as_functional(program)


def _refused(
    module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], error: Exception
) -> Exception:
    """Why a module could not be exported: it does not run at all, or only not without numbers."""
    who = type(module).__name__
    try:
        module(*arguments, **options)
    except Exception as failure:  # noqa: BLE001 - a user's module may raise anything
        given = ", ".join(
            str(tuple(part.shape)) if isinstance(part, Tensor) else repr(part)
            for part in (*arguments, *options.values())
        )
        return SizeError(f"trace: {who} cannot be run on {given}: {_first_line(failure)}")
    return UnsupportedModuleError(f"trace: torch cannot export {who}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings and log lines that torch.export has for its own developers."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def _masks_as_they_are() -> Iterator[None]:
    """Leave out the question of PyTorch's transformers whether a mask is causal.

    The answer depends on numbers, so that torch could not export it. It is only a hint: the mask
    is applied either way.
    """
    original = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = original


@contextmanager
def _no_cache(module: nn.Module) -> Iterator[None]:
    """Leave out the keys and values that language models return for the next call.

    They are no tensors, so that torch could not export them, and no other output depends on them.
    """
    held: list[Any] = [getattr(inner, "config", None) for inner in module.modules()]
    changed = [one for one in held if getattr(one, "use_cache", None) is True]
    for configuration in changed:
        configuration.use_cache = False
    try:
        yield
    finally:
        for configuration in changed:
            configuration.use_cache = True


# --- Programs as functions of values: no operation changes a tensor that it was given -------------


aten = torch.ops.aten
# What torch leaves whole: operations with these tags, and some others.
_WHOLE_TAGS = {torch.Tag.core, torch.Tag.pointwise}
_WHOLE = (
    aten.linear.default,
    aten.matmul.default,
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.layer_norm.default,
    aten.max_pool2d.default,
    aten.pad.default,
    aten.softmax.int,
    aten.scaled_dot_product_attention.default,
    aten.transpose.int,
    aten.unbind.int,
    aten.einsum.default,
    aten.zeros.default,
    aten.zeros_like.default,
    aten.lstm.input,
    aten.gru.input,
    aten._assert_tensor_metadata.default,
)
_DROPOUTS = (
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)


def as_functional(program: ExportedProgram) -> ExportedProgram:
    """The same program, in which every operation is a function of values.

    `ExportedProgram.run_decompositions` does so for every program, but runs it once more and takes
    longer than exporting a small module. Most programs need only a few rewrites.
    """
    is_done = [_rewritten(node) for node in list(program.graph.nodes)]
    program.graph_module.recompile()
    if all(is_done):
        return program
    # Nothing is decomposed; in-place operations become functions of values.
    functional: ExportedProgram = program.run_decompositions({})
    return functional


def _rewritten(node: fx.Node) -> bool:
    """Whether a node is a function that torch would leave whole, after rewriting it if possible."""
    target = node.target
    if node.op != "call_function" or target in (operator.getitem, operator.mul):
        return node.op in ("placeholder", "output", "call_function")
    if not isinstance(target, torch._ops.OpOverload):
        return False
    rule = _RULES.get(target, _out_of_place if target._schema.is_mutable else None)
    if rule is not None:
        return rule(node)
    return target in _WHOLE or not _WHOLE_TAGS.isdisjoint(target.tags)


def _without_dropout(node: fx.Node) -> bool:
    # Dropout gives back the very tensor that it takes, but torch takes its result for a copy
    # and would lose what is changed in place afterwards.
    if not node.args[2]:
        node.target, node.args = aten.alias.default, node.args[:1]
    return node.target is aten.alias.default


def _out_of_place(node: fx.Node) -> bool:
    """Make a function of an operation in place if nothing else sees the tensor that it changes."""
    changed, *others = node.args
    packet = str(node.target.overloadpacket.__name__)  # type: ignore[union-attr]
    function = getattr(getattr(aten, packet[:-1], None), _overload(node), None)
    is_promoted = any(_dtype(other) not in (None, _dtype(changed)) for other in others)
    if not packet.endswith("_") or function is None or is_promoted or not _is_own(changed, node):
        return False
    node.target = function
    return True


def _overload(node: fx.Node) -> str:
    return str(node.target._overloadname)  # type: ignore[union-attr]


def _dtype(part: Any) -> torch.dtype | None:
    value = part.meta.get("val") if isinstance(part, fx.Node) else None
    return value.dtype if isinstance(value, Tensor) else None


def _is_own(part: Any, user: fx.Node) -> bool:
    """Whether a tensor was made by a function that gives no view, for this user alone."""
    if not isinstance(part, fx.Node) or part.op != "call_function" or set(part.users) != {user}:
        return False
    if part.target is operator.getitem:
        return _is_own(part.args[0], part)
    if not isinstance(part.target, torch._ops.OpOverload):
        return False
    return all(returned.alias_info is None for returned in part.target._schema.returns)


def _as_view(node: fx.Node) -> bool:
    """`flatten`, `unflatten` and `reshape` are views of what lies in memory in order."""
    source, value = node.args[0], node.meta["val"]
    assert isinstance(source, fx.Node), "the first argument is a tensor"
    asked = node.args[1] if node.target is aten.reshape.default else ()
    given = dict(enumerate(asked)) if isinstance(asked, (list, tuple)) else {}
    sizes = [
        given[axis] if isinstance(given.get(axis), fx.Node) else _size(size, node.graph)
        for axis, size in enumerate(value.shape)
    ]
    if None in sizes or not source.meta["val"].is_contiguous():
        return False
    if node.target is aten.flatten.using_ints and value.ndim == source.meta["val"].ndim:
        node.target, node.args, node.kwargs = aten.alias.default, (source,), {}
        return True
    node.target, node.args, node.kwargs = aten.view.default, (source, sizes), {}
    return True


def _size(size: int | torch.SymInt, graph: fx.Graph) -> int | fx.Node | None:
    """A size as an argument: a number, or the node that reads it from an input."""
    fixed = size if isinstance(size, int) else size.node.maybe_as_int()
    if fixed is not None:
        return int(fixed)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in inputs:
        value = node.meta.get("val")
        for axis, other in enumerate(value.shape if isinstance(value, Tensor) else ()):
            if str(other) == str(size):
                return _size_of(node, axis, inputs[-1])
    return None


def _size_of(source: fx.Node, axis: int, last_input: fx.Node) -> fx.Node:
    for node in source.users:
        if node.target is aten.sym_size.int and node.args == (source, axis):
            return node
    with source.graph.inserting_after(last_input):
        node = source.graph.call_function(aten.sym_size.int, (source, axis))
    node.meta["val"] = source.meta["val"].shape[axis]
    return node


def _as_clone(node: fx.Node) -> bool:
    """`contiguous` gives a tensor back that is so already, else a copy."""
    source = node.args[0]
    assert isinstance(source, fx.Node), "the first argument is a tensor"
    if len(node.args) > 1 or node.kwargs:
        return False
    if source.meta["val"].is_contiguous():
        node.target = aten.alias.default
    else:
        node.target, node.kwargs = aten.clone.default, {"memory_format": torch.contiguous_format}
    return True


def _as_copy(node: fx.Node) -> bool:
    """`to` gives a tensor back that has the precision already, else a copy."""
    source, *asked = node.args
    if len(asked) != 1 or node.kwargs:
        return False
    if _dtype(source) == asked[0]:
        node.target, node.args = aten.alias.default, (source,)
    else:
        node.target, node.args = aten._to_copy.default, (source,)
        node.kwargs = {"dtype": asked[0]}
    return True


def _as_split(node: fx.Node) -> bool:
    """`chunk` cuts an axis of known length into parts of equal length."""
    source, _, *axes = node.args
    axis = axes[0] if axes else 0
    first = node.meta["val"][0]
    if not isinstance(axis, int) or not isinstance(first.shape[axis], int):
        return False
    node.target, node.args = aten.split.Tensor, (source, first.shape[axis], axis)
    return True


def _normalized(node: fx.Node) -> bool:
    """A normalization by constants; torch's function gives two empty tensors beside it."""
    *parts, is_training, momentum, eps, _ = node.args
    if is_training:
        return False
    with node.graph.inserting_before(node):
        function = aten._native_batch_norm_legit_no_training.default
        whole = node.graph.call_function(function, (*parts, momentum, eps))
    value = node.meta["val"]
    whole.meta = {**node.meta, "val": (value, value.new_empty(0), value.new_empty(0))}
    node.target, node.args = operator.getitem, (whole, 0)
    return True


_RULES: dict[Any, Callable[[fx.Node], bool]] = {
    **dict.fromkeys(_DROPOUTS, _without_dropout),
    aten.flatten.using_ints: _as_view,
    aten.unflatten.int: _as_view,
    aten.reshape.default: _as_view,
    aten.contiguous.default: _as_clone,
    aten.chunk.default: _as_split,
    aten.to.dtype: _as_copy,
    aten.batch_norm.default: _normalized,
}
