"""Reads a model: every weight that could be written smaller, and why the others are left alone.

reading = read_sites(model)
reading.sites           # weights of nn.Linear, Conv1d/2d, Embedding, attention, LSTM and GRU
reading.left_alone      # every other module with parameters, with the reason
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from rankscope.compression.parts import parts_of
from rankscope.compression.refusals import identity, refusal, twins
from rankscope.errors import CompressionError
from rankscope.layers.formats.format import WeightShape, Window

AS_ASKED = "left alone as asked"


@dataclass(frozen=True)
class LeftAlone:
    """A module whose parameters stay as they are, and why; those tied to others count once."""

    name: str
    kind: str
    shape: tuple[int, ...]
    bits: int
    num_parameters: int
    reason: str


@dataclass(frozen=True, eq=False)
class Site:
    """One weight that could be written smaller.

    Args:
        name: as rows of a plan say it: of the module, or `module.part` where it has several.
        module_name: of the module that holds it; empty for the model itself.
        part: "weight"; "query", "key", "value" or "out"; or "weight_ih_l0" and the like.
        kind: class of the module.
        weight: (groups, out_size, in_size, *kernel), a view of the model's own.
        window: how its kernel moves; a matrix has none.
        bias: how many further parameters its row counts.
        beside: how many of its own numbers stay as they are beside the cores.
    """

    name: str
    module_name: str
    part: str
    kind: str
    weight: Tensor
    window: Window
    bias: int
    beside: int = 0

    @property
    def shape(self) -> WeightShape:
        """Of one group."""
        return WeightShape.of(self.weight[0])

    @property
    def groups(self) -> int:
        """How many weights of that shape there are."""
        return len(self.weight)

    @property
    def bits(self) -> int:
        """Of each number, as trained."""
        return 8 * self.weight.element_size()

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """As PyTorch stores the weight, all groups."""
        return (self.groups * self.shape.out_size, *self.shape.sizes[1:])

    @property
    def num_parameters(self) -> int:
        """With the bias."""
        return self.weight.numel() + self.bias

    def left_alone(self, reason: str) -> "LeftAlone":
        """The row of a site that stays dense."""
        return LeftAlone(
            self.name, self.kind, self.stored_shape, self.bits, self.num_parameters, reason
        )


@dataclass(frozen=True, eq=False)
class Reading:
    """All modules of a model that have parameters, in its order; parameters are counted once."""

    entries: tuple[Site | LeftAlone, ...]

    @property
    def sites(self) -> tuple[Site, ...]:
        """What could be written smaller."""
        return tuple(entry for entry in self.entries if isinstance(entry, Site))

    @property
    def left_alone(self) -> tuple[LeftAlone, ...]:
        """What stays as it is."""
        return tuple(entry for entry in self.entries if isinstance(entry, LeftAlone))


def read_sites(model: nn.Module, *, leave: Sequence[str] = ()) -> Reading:
    """Find every weight of a model, and sort them into sites and those left alone.

    Args:
        model: any module; it is only looked at.
        leave: names of modules or weights to leave alone, `*` for any part of a name.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
        >>> [(site.name, site.kind) for site in read_sites(model).sites]
        [('0', 'Linear')]
        >>> [left.reason for left in read_sites(model).left_alone]
        ['normalization: too few numbers to gain anything']

    Raises:
        CompressionError: if a parameter is not finite or not initialized, or `leave` names nothing.
    """
    _check_finite(model)
    reading = Reading(tuple(_entries(model, tuple(leave))))
    names = [entry.name for entry in reading.entries]
    for pattern in leave:
        if not any(_matches(name, (pattern,)) for name in names):
            raise CompressionError(
                f"leave: no module with parameters matches {pattern!r}; there are "
                f"{len(names)}: {', '.join(names[:8])}{', ...' * (len(names) > 8)}."
            )
    return reading


def _check_finite(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise CompressionError(
                f"{name} has no shape yet (a lazy module); run the model once on data first."
            )
        # One parameter at a time, and a sum before a mask: memory stays that of the model.
        if parameter.is_floating_point() and not bool(torch.isfinite(parameter.detach().sum())):
            bad = int((~torch.isfinite(parameter.detach())).sum())
            if bad:
                raise CompressionError(
                    f"{name} holds {bad:,} NaN or infinite numbers of {parameter.numel():,}; "
                    "repair or reload the weights before compressing."
                )


def _entries(model: nn.Module, leave: tuple[str, ...]) -> Iterator[Site | LeftAlone]:
    shared = twins(model)
    counted: set[object] = set()
    spoken_for: str | None = None  # prefix of the modules inside one that spoke for all
    for name, module in model.named_modules():
        if spoken_for is not None and name.startswith(spoken_for):
            continue
        found = refusal(name, module, shared)
        speaks_for_all = found is None or found.covers_children
        spoken_for = (f"{name}." if name else "") if speaks_for_all else None
        held = dict(module.named_parameters(recurse=speaks_for_all))
        if not held:
            continue
        if found is None and not _matches(name, leave):
            yield from _sites(name, module, leave)
            continue
        reason = found.reason if found else AS_ASKED
        fresh = {identity(parameter): parameter for parameter in held.values()}
        num_new = sum(p.numel() for key, p in fresh.items() if key not in counted)
        counted |= set(fresh)
        largest = max(held.values(), key=Tensor.numel)
        kind, bits = type(module).__name__, 8 * largest.element_size()
        yield LeftAlone(name, kind, tuple(largest.shape), bits, num_new, reason)


def _sites(name: str, module: nn.Module, leave: Sequence[str]) -> Iterator[Site | LeftAlone]:
    parts = list(parts_of(module))
    for part in parts:
        own_name = name if len(parts) == 1 else ".".join(filter(None, (name, part.name)))
        kind = type(module).__name__
        counts = part.bias, part.beside
        site = Site(own_name, name, part.name, kind, part.weight, part.window, *counts)
        is_left = _matches(own_name, leave)
        yield site.left_alone(AS_ASKED) if is_left else site


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in patterns)
