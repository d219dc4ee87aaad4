"""A drawable as a real `nn.Module` that carries out its contraction plan."""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.diagrams.network import Constant, Drawable, Structure, as_network
from rankscope.diagrams.running.arrays import Array
from rankscope.diagrams.running.execution import carry_out, prepare
from rankscope.diagrams.running.identifiers import identifiers
from rankscope.diagrams.running.schedule import Schedule
from rankscope.diagrams.running.scheduling import schedule
from rankscope.diagrams.search.methods import AUTOMATIC, Method
from rankscope.errors import DiagramError, SizeError


class DiagramModule(nn.Module):
    """A drawable that runs.

    Each parameter array is a parameter of the module, and `array_names` says which array a
    parameter's name stands for. Call it with the inputs in the order of `input_names`, or with
    some of them by name.
    """

    _like: Tensor

    def __init__(
        self,
        planned: Schedule,
        parameters: Mapping[str, Tensor],
        structure: Structure | None = None,
    ) -> None:
        super().__init__()
        self.schedule = planned
        self.structure = structure
        self.input_names = tuple(array.name for array in planned.arrays if array.is_input)
        own = [array.name for array in planned.arrays if not array.is_input]
        self.array_names = {plain: name for name, plain in identifiers(own).items()}
        learned = {array.name for array in planned.arrays if array.is_parameter}
        for plain, name in self.array_names.items():
            array = parameters[name]
            if name in learned and array.is_floating_point():
                self.register_parameter(plain, nn.Parameter(array))
            else:
                self.register_buffer(plain, array)
        # What a constant without any neighbour takes its precision and its device from.
        like = next(self.parameters(), torch.empty(0, dtype=torch.get_default_dtype()))
        self.register_buffer("_like", like.detach().new_zeros(()), persistent=False)
        self._lines = prepare(planned)
        self._inputs = planned.arrays[: planned.num_inputs]
        self._shapes = tuple(
            tuple(reader.shape for reader in array.whole) if not array.sliced else ()
            for array in self._inputs
        )
        self._room = [None] * len(planned.operations)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The value of the drawable, in the structure of what it was read from.

        Inputs inside tuples, lists and dicts are taken in order. What is no tensor (None, flags,
        numbers) is as it was when a module was read, and is not looked at.

        Raises:
            DiagramError: if an input is missing, given twice or unknown, or is not integer where
                the diagram picks with it.
            SizeError: if an input has another shape than the diagram says.
        """
        flat = tuple(_tensors(inputs))
        options = {name: part for name, part in named.items() if [*_tensors((part,))]}
        given = flat if not options else self._in_order(flat, options)
        if len(given) != len(self._inputs):
            raise DiagramError(
                f"{self.schedule.name!r} takes {len(self._inputs)} inputs "
                f"({', '.join(self.input_names) or 'none'}), got {len(given)}."
            )
        for array, shapes, value in zip(self._inputs, self._shapes, given, strict=True):
            # Almost always one comparison; the rest finds the words for what is wrong.
            if (shapes and value.shape not in shapes) or array.is_integer:
                check_array(array, value)
        parameters = [getattr(self, plain) for plain in self.array_names]
        values: list[Tensor | None] = [*given, *parameters, *self._room, self._like]
        results = carry_out(self._lines, values, self.schedule.results)
        return results[0] if self.structure is None else restored(self.structure, results)

    def _in_order(self, inputs: tuple[Tensor, ...], named: Mapping[str, Tensor]) -> list[Tensor]:
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


def _tensors(parts: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among arguments, in order."""
    for part in parts:
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, Mapping):
            yield from _tensors(part.values())
        elif isinstance(part, tuple | list):
            yield from _tensors(part)


def restored(structure: Structure, tensors: Sequence[Tensor]) -> Any:
    """Tensors in the structure of what a module returned.

    A class is used only if it is loaded already and holds its parts as a dict or a tuple does;
    otherwise a plain dict or tuple takes its place.
    """
    return _restored(structure, iter(tensors))


def _restored(structure: Structure, tensors: Iterator[Tensor]) -> Any:
    if structure.kind in ("tensor", "value"):
        return next(tensors) if structure.kind == "tensor" else structure.value
    parts = [_restored(part, tensors) for part in structure.parts]
    if structure.kind in ("tuple", "list"):
        return tuple(parts) if structure.kind == "tuple" else parts
    named = dict(zip(structure.keys, parts, strict=True))
    home, _, name = structure.kind.partition(":")
    known = getattr(sys.modules.get(home), name, None) if name else None
    if isinstance(known, type) and issubclass(known, dict | tuple):
        return known(**named)
    return named


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
    wanted = [array for array in planned.arrays if not array.is_input]
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
        {a.name: _copied(arrays[a.name], dtype) for a in wanted},
        network.structure,
    )


def _copied(array: Tensor, dtype: torch.dtype | None) -> Tensor:
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
