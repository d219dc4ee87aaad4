"""A drawable as a real `nn.Module` that runs the lines of its source."""

import itertools
import linecache
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.diagrams.network import Constant, Drawable, Structure, as_network
from rankscope.diagrams.running.arrays import Array
from rankscope.diagrams.running.schedule import Schedule, schedule
from rankscope.diagrams.search import AUTOMATIC, Method
from rankscope.diagrams.source import (
    Stored,
    class_name,
    identifiers,
    needs_like,
    write_source,
)
from rankscope.errors import DiagramError, SizeError


class DiagramModule(nn.Module):
    """A drawable that runs.

    Each parameter array is a parameter of the module, and `array_names` says which array a
    parameter's name stands for. `source` is the Python file whose `forward` it runs. Call it with
    the inputs in the order of `input_names`, or with some of them by name.
    """

    _run: Callable[..., Any]

    def __init__(
        self,
        planned: Schedule,
        arrays: Mapping[str, Tensor],
        structure: Structure | None = None,
    ) -> None:
        super().__init__()
        self.schedule = planned
        self.structure = structure
        self.input_names = tuple(array.name for array in planned.inputs)
        own = identifiers(array.name for array in planned.stored)
        self.array_names = {plain: name for name, plain in own.items()}
        for array in planned.stored:
            value = arrays[array.name]
            if array.is_parameter and value.is_floating_point():
                self.register_parameter(own[array.name], nn.Parameter(value))
            else:
                self.register_buffer(own[array.name], value)
        if needs_like(planned):
            self.register_buffer("_like", torch.zeros(()), persistent=False)
        self.source = write_source(
            planned, [_describe_storage(arrays[a.name]) for a in planned.stored]
        )
        self._run = compiled_forward(self.source, class_name(planned.name))
        # By input, the shape that the lines expect; None if they take more than one.
        self._inputs = planned.inputs
        self._shapes = tuple(
            array.shape if array.readers and not array.sliced else None for array in self._inputs
        )

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The value of the drawable, in the structure of what it was read from.

        Inputs inside tuples, lists and dicts are taken in order. What is no tensor (None, flags,
        numbers) is as it was when a module was read, and is not looked at.

        Raises:
            DiagramError: if an input is missing, given twice or unknown, or is not integer where
                the diagram picks with it.
            SizeError: if an input has another shape than the diagram says.
        """
        given = list(_tensors(inputs))
        options = {name: part for name, part in named.items() if [*_tensors((part,))]}
        if options:
            given = self._in_order(given, options)
        if len(given) != len(self._inputs):
            raise DiagramError(
                f"{self.schedule.name!r} takes {len(self._inputs)} inputs "
                f"({', '.join(self.input_names) or 'none'}), got {len(given)}."
            )
        for place, (array, shape) in enumerate(zip(self._inputs, self._shapes, strict=True)):
            # Almost always one comparison; the rest finds the words for what is wrong.
            if given[place].shape != shape or array.is_integer:
                check_array(array, given[place])
                # Nodes that read one array in several shapes allow each of them.
                given[place] = given[place] if shape is None else given[place].reshape(shape)
        made = self._run(self, *given)
        if self.structure is None:
            return made if len(self.schedule.results) == 1 else made[0]
        return restore_structure(
            self.structure, (made,) if len(self.schedule.results) == 1 else made
        )

    def __getstate__(self) -> dict[str, Any]:
        # Compiled code is made again from its text, so that a module can be copied and saved.
        return {key: value for key, value in self.__dict__.items() if key != "_run"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._run = compiled_forward(self.source, class_name(self.schedule.name))

    def _in_order(self, inputs: Sequence[Tensor], named: Mapping[str, Tensor]) -> list[Tensor]:
        rest = self.input_names[len(inputs) :]
        for name in named:
            if name not in rest:
                raise DiagramError(
                    f"{self.schedule.name!r} has no free input {name!r}; after {len(inputs)} by "
                    f"position these are left: {', '.join(rest) or 'none'}."
                )
        return [*inputs, *(named[name] for name in rest if name in named)]

    def extra_repr(self) -> str:
        count = sum(parameter.numel() for parameter in self.parameters())
        return (
            f"{self.schedule.name!r}, inputs={self.input_names}, parameters={count:,}, "
            f"operations={len(self.schedule.operations)}"
        )


def _describe_storage(array: Tensor) -> Stored:
    is_plain = array.is_floating_point()
    return Stored(tuple(array.shape), None if is_plain else str(array.dtype).removeprefix("torch."))


def _tensors(parts: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among arguments, in order."""
    for part in parts:
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, Mapping):
            yield from _tensors(part.values())
        elif isinstance(part, tuple | list):
            yield from _tensors(part)


def restore_structure(structure: Structure, tensors: Sequence[Tensor]) -> Any:
    """Tensors in the structure of what a module returned.

    A class is used only if it is loaded already and holds its parts as a dict or a tuple does;
    otherwise a plain dict or tuple takes its place.
    """
    return _restore(structure, iter(tensors))


def _restore(structure: Structure, tensors: Iterator[Tensor]) -> Any:
    if structure.kind in ("tensor", "value"):
        return next(tensors) if structure.kind == "tensor" else structure.value
    parts = [_restore(part, tensors) for part in structure.parts]
    if structure.kind in ("tuple", "list"):
        return tuple(parts) if structure.kind == "tuple" else parts
    named = dict(zip(structure.keys, parts, strict=True))
    home, _, name = structure.kind.partition(":")
    known = getattr(sys.modules.get(home), name, None) if name else None
    if isinstance(known, type) and issubclass(known, dict | tuple):
        return known(**named)
    return named


@lru_cache(maxsize=256)
def compiled_forward(source: str, name: str) -> Callable[..., Any]:
    """The `forward` of the class in a file that `write_source` has written."""
    path = f"<rankscope {name} {abs(hash(source)):x}>"
    # So that a traceback shows the line.
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    # Without a name of its own: torch.compile would import the module of that name.
    names: dict[str, Any] = {}
    exec(compile(source, path, "exec"), names)
    forward: Callable[..., Any] = names[name].forward
    return forward


def to_module(
    drawable: Drawable,
    arrays: Mapping[str, Tensor] | None = None,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    method: Method = AUTOMATIC,
) -> DiagramModule:
    """Make a module that computes the drawable.

    Args:
        drawable: a diagram, sum or network with all its sizes.
        arrays: the parameters by array name; others in the mapping are not used. Without it,
            entries are drawn with variance one over the number of entries that are summed.
        generator: where random entries come from.
        dtype: precision of the parameters; by default that of `arrays`, or PyTorch's default.
        method: how the contraction order is chosen.

    Example:
        >>> from rankscope.diagrams.diagram import Diagram
        >>> from rankscope.diagrams.parts import Index, Node, Role
        >>> layer = Diagram(
        ...     "layer",
        ...     (Index("b", 8), Index("i", 3), Index("o", 4)),
        ...     (Node("X", ("b", "i"), Role.DATA), Node("W", ("o", "i"))),
        ...     output=("b", "o"),
        ... )
        >>> module = to_module(layer)
        >>> module(torch.ones(8, 3)).shape, module.W.shape
        (torch.Size([8, 4]), torch.Size([4, 3]))

    Raises:
        SizeError: if sizes are missing, or an array has another number of entries.
        DiagramError: if a parameter array is not given, or a node can be given no values.
        ContractionError: if a region cannot be contracted.
    """
    planned = schedule(drawable, method)
    network = as_network(drawable)
    own = {constant.name: _tensor(constant) for constant in network.constants}
    wanted = planned.stored
    if arrays is None:
        drawn = {a.name: _random(a, generator, dtype) for a in wanted if a.name not in own}
        return DiagramModule(planned, drawn | own, network.structure)
    arrays = {**arrays, **own}
    missing = [array.name for array in wanted if array.name not in arrays]
    if missing:
        raise DiagramError(
            f"{drawable.name!r} needs the arrays {', '.join(missing)}, which are not among the "
            f"{len(arrays)} given: {', '.join(arrays) or 'none'}."
        )
    for array in wanted:
        check_array(array, arrays[array.name])
    return DiagramModule(
        planned,
        {a.name: _copy(arrays[a.name], dtype) for a in wanted},
        network.structure,
    )


def _copy(array: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A copy, in another precision if it holds floating-point numbers."""
    return array.detach().to(dtype if array.is_floating_point() else None, copy=True)


def _tensor(constant: Constant) -> Tensor:
    if not math.prod(constant.shape):
        return torch.empty(constant.shape, dtype=getattr(torch, constant.dtype))
    flat = torch.frombuffer(bytearray(constant.data), dtype=getattr(torch, constant.dtype))
    return flat.reshape(constant.shape)


def _random(array: Array, generator: torch.Generator | None, dtype: torch.dtype | None) -> Tensor:
    device = None if generator is None else generator.device
    drawn = torch.randn(array.shape, generator=generator, dtype=dtype, device=device)
    return drawn / math.sqrt(array.fan)


def check_array(array: Array, value: Tensor) -> None:
    """Refuse an array that its readers cannot read.

    An input must have the shape of a node that reads it; parameters may be stored in any shape.
    Rows are rows of the first axis.

    Raises:
        SizeError: with both shapes.
        DiagramError: if it holds numbers where integers are wanted, or the other way round.
    """
    is_number = value.is_floating_point() or value.is_complex()
    is_wrong = is_number if array.is_integer else not (is_number or array.is_input)
    if is_wrong and array.is_integer is not None:
        wanted = "integers, to pick with" if array.is_integer else "floating-point numbers"
        raise DiagramError(f"Array {array.name!r} must hold {wanted}, got {value.dtype}.")
    shape, shapes = tuple(value.shape), [reader.shape for reader in array.whole]
    if array.is_input:
        fits = len(shapes) == 0 or shape in shapes
    else:
        fits = len(shapes) == 0 or value.numel() == math.prod(shapes[0])
    if not fits:
        wanted = " or ".join(str(each) for each in dict.fromkeys(shapes))
        raise SizeError(
            f"{'Input' if array.is_input else 'Array'} {array.name!r} must have shape {wanted}, "
            f"got {shape}."
        )
    if array.sliced:
        _check_rows(array, shape)


def _check_rows(array: Array, shape: tuple[int, ...]) -> None:
    width, entries = array.sliced[0].row_entries, math.prod(shape)
    if entries % width or entries // width < array.num_rows:
        raise SizeError(
            f"Array {array.name!r} must have at least {array.num_rows} rows of {width:,} entries, "
            f"got shape {shape}."
        )


def module_arrays(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; one that is used under several names stands under each.

    Example:
        >>> {name: tuple(array.shape) for name, array in module_arrays(nn.Linear(2, 3)).items()}
        {'weight': (3, 2), 'bias': (3,)}
    """
    return {
        name: tensor.detach()
        for name, tensor in itertools.chain(
            module.named_parameters(remove_duplicate=False),
            module.named_buffers(remove_duplicate=False),
        )
    }
