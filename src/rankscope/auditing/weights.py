"""The audit of weights: a row for every tensor, one tensor in memory at a time."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import cast

import torch
from torch import Tensor

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.packing import Packing, attention_blocks, packing_of
from rankscope.auditing.spectra import (
    Geometry,
    Spectrum,
    convolution_spectrum,
    depthwise,
    image_side,
    matrix_spectrum,
    working_memory,
)
from rankscope.auditing.tensors import MatrixRow, OnRow, TensorRow, layer_of, part_of
from rankscope.errors import SizeError
from rankscope.modes import one_thread
from rankscope.progress import Progress, Report, ignore
from rankscope.tensor_files.sources import TensorEntry, TensorSource

# --- The matrices worth seeing in a tensor, and why some tensors have none ------------------------


_MOST_AXES = 5
_ENTRIES_AT_ONCE = 2**22


@dataclass(frozen=True)
class WeightOptions:
    """Options of the audit of weights.

    Args:
        image_side: of the images that convolutions are seen on; None for one that suits each kernel
            (`convolutions.image_side`).
        geometries: strides, dilations and groups by the name of a weight
            (`convolutions.geometries`); a kernel without one is taken with stride 1 and one group.
        memory_limit: bytes that the decomposition of one matrix may take.

    Raises:
        SizeError: if the side of the image is less than one.
    """

    image_side: int | None = None
    geometries: Mapping[str, Geometry] = field(default_factory=dict)
    memory_limit: int = 8 * 2**30

    def __post_init__(self) -> None:
        if self.image_side is not None and self.image_side < 1:
            raise SizeError(
                f"WeightOptions: images need a side of at least 1, got {self.image_side}."
            )


DEFAULTS = WeightOptions()
_LARGEST_ENTRY = 1e140  # a matrix of such entries still has a finite sum of squares
_WITHOUT_SPECTRUM = {0: "a single number", 1: "a vector"}  # by the number of axes longer than 1


def reason_before_reading(entry: TensorEntry) -> str | None:
    """Why a tensor of this shape and dtype has no spectrum, or None.

    Example:
        >>> reason_before_reading(TensorEntry("bias", (64,), "float32"))
        'a vector'
    """
    dtype = getattr(torch, entry.dtype, None)
    if math.prod(entry.shape) == 0:
        return f"no entries: shape {entry.shape}"
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        return f"{entry.dtype} entries: not real numbers with a spectrum"
    axes = sum(size > 1 for size in entry.shape)
    if axes > 1 and len(entry.shape) > _MOST_AXES:
        return f"{len(entry.shape)} axes: no layer is known that has more than {_MOST_AXES}"
    return _WITHOUT_SPECTRUM.get(axes)


def is_short(reason: str | None) -> bool:
    """Whether a tensor only lacks a spectrum, so that its entries are still to be looked at."""
    return reason in _WITHOUT_SPECTRUM.values()


def reason_in_entries(tensor: Tensor) -> str | None:
    """Why these entries have no spectrum, or None.

    Example:
        >>> reason_in_entries(torch.tensor([[1.0, float("nan")]]))
        '1 of 2 entries is NaN, 0 infinite'
    """
    not_numbers = infinite = huge = 0
    for piece in torch.split(tensor.flatten(), _ENTRIES_AT_ONCE):
        # Not every short dtype can be asked.
        entries = piece.float() if piece.element_size() < 4 else piece
        not_numbers += int(entries.isnan().sum())
        infinite += int(entries.isinf().sum())
        if entries.dtype == torch.float64:
            huge += int((entries.abs() > _LARGEST_ENTRY).sum()) - int(entries.isinf().sum())
    if not_numbers == infinite == huge == 0:
        return None
    verb = "is" if not_numbers == 1 else "are"
    reason = f"{not_numbers:,} of {tensor.numel():,} entries {verb} NaN, {infinite:,} infinite"
    return reason + (f", {huge:,} above {_LARGEST_ENTRY:g}, too large to be squared" * bool(huge))


def reason_of_size(shape: tuple[int, ...], dtype: torch.dtype, limit: int) -> str | None:
    """Why a tensor is too large to be decomposed, or None."""
    needed = working_memory(shape[0], math.prod(shape[1:]), dtype)
    if needed <= limit:
        return None
    return (
        f"too large: its spectrum needs about {needed / 2**30:,.1f} GiB, "
        f"over the memory limit of {limit / 2**30:,.1f} GiB"
    )


def views(
    name: str, tensor: Tensor, packing: Packing | None, options: WeightOptions
) -> Iterator[tuple[str, Spectrum]]:
    """Every matrix of a tensor by its name; "" is the tensor itself.

    Args:
        name: of the tensor; some tensors of order three are told apart by it alone.
        tensor: floating point, without NaN, with two axes or more that are longer than one.
        packing: what is fused in it.
        options: image sizes and geometries.
    """
    if packing is not None:
        for part, matrix in packing.unpack(tensor).items():
            yield part, matrix_spectrum(matrix)
    elif tensor.ndim == 3 and "expert" in name:
        for number, matrix in enumerate(tensor):
            yield f"expert {number}", matrix_spectrum(matrix)
    else:
        yield "", matrix_spectrum(_as_matrix(name, tensor))
        yield from _operators(name, tensor, options)


def _as_matrix(name: str, tensor: Tensor) -> Tensor:
    """Outputs against all inputs; positions of an embedding stand in a batch of one."""
    if part_of(name) == "embedding" and tensor.shape[0] == 1:
        return tensor.flatten(0, -2)
    return tensor.flatten(1)


def _operators(name: str, tensor: Tensor, options: WeightOptions) -> Iterator[tuple[str, Spectrum]]:
    geometry = options.geometries.get(name)
    if geometry is None and not _looks_like_a_kernel(name):
        return
    if tensor.ndim < 3 or math.prod(tensor.shape[2:]) == 1:
        return
    choices = [geometry or Geometry()]
    if geometry is None and tensor.shape[1] == 1:
        # A gray image and one channel to each group have kernels of the same shape.
        choices.append(depthwise(tuple(tensor.shape), choices[0]))
    for choice in choices:
        side = image_side(tuple(tensor.shape), choice, options.image_side)
        image = " x ".join([str(side)] * (tensor.ndim - 2))
        yield f"operator on {image}, {choice}", convolution_spectrum(tensor, side, choice)


def _looks_like_a_kernel(name: str) -> bool:
    """Patches do not overlap, so that their flattened kernel is the operator."""
    return "conv" in name.lower() or part_of(name) == "other"


# --- Tensors with the same content, whether tied or copied ----------------------------------------


# Bytes hashed at a time, so that a mapped file is not copied into memory.
_AT_ONCE = 2**20


def fingerprint(tensor: Tensor) -> bytes | None:
    """Equal for two tensors of equal shape, dtype and bytes, and for no others in practice.

    None if all entries are equal: fresh scales and shifts are alike without being tied.

    Example:
        >>> fingerprint(torch.eye(2)) == fingerprint(torch.eye(2).clone())
        True
        >>> fingerprint(torch.zeros(2, 2)) is None
        True
    """
    pieces = torch.split(tensor.contiguous().view(-1).view(torch.uint8), _AT_ONCE)
    size = tensor.element_size()
    first = pieces[0][:size]
    if all(bool((piece.view(-1, size) == first).all()) for piece in pieces):
        return None
    hashed = blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=32)
    for piece in pieces:
        hashed.update(piece.numpy().data)
    return hashed.digest()


def audit_weights(
    source: TensorSource,
    configuration: Configuration | None,
    options: WeightOptions = DEFAULTS,
    *,
    report: Report = ignore,
    on_row: OnRow = lambda row: None,
) -> tuple[TensorRow, ...]:
    """Look at every tensor of a model.

    Args:
        source: its tensors; each is read when its turn comes and then forgotten, and so are the
            key and the value weights that stand in products with it.
        configuration: tells the heads apart; without it there are no products of heads.
        options: image sizes, geometries of convolutions, memory.
        report: called after every tensor.
        on_row: called with every row as soon as it is there.
    """
    audited = _Audit(source, configuration, options)
    rows: list[TensorRow] = []
    for done, entry in enumerate(source.entries, start=1):
        with one_thread():
            row = audited.row(entry)
        rows.append(row)
        # What is tied has no entry of its own, but a name that people look for.
        rows.extend(
            replace(row, name=name, part=part_of(name), layer=layer_of(name), same_as=entry.name)
            for name in entry.tied_names
        )
        for one in rows[-1 - len(entry.tied_names) :]:
            on_row(one)
        report(Progress("tensors", done, len(source.entries)))
    return tuple(rows)


class _Audit:
    """The state of an audit of weights: spectra so far, for reuse by copies."""

    def __init__(
        self, source: TensorSource, configuration: Configuration | None, options: WeightOptions
    ) -> None:
        self._source = source
        self._options = options
        self._configuration = configuration
        self._entries = {entry.name: entry for entry in source.entries}
        self._shapes = {entry.name: entry.shape for entry in source.entries}
        self._blocks = attention_blocks(self._shapes, configuration)
        self._first_names: dict[bytes, str] = {}
        self._seen: dict[tuple[bytes, Packing | None], tuple[MatrixRow, ...]] = {}

    def row(self, entry: TensorEntry) -> TensorRow:
        row = TensorRow(
            name=entry.name,
            part=part_of(entry.name),
            shape=entry.shape,
            dtype=entry.dtype,
            reason=reason_before_reading(entry),
            layer=layer_of(entry.name),
        )
        if row.reason is not None and not is_short(row.reason):
            return row
        tensor = self._read(entry.name)
        if row.reason is not None:
            return replace(row, reason=reason_in_entries(tensor) or row.reason)
        mark = fingerprint(tensor)
        first = entry.name if mark is None else self._first_names.setdefault(mark, entry.name)
        row = replace(row, same_as=None if first == entry.name else first)
        reason = self._reason(tensor)
        if reason is not None:
            return replace(row, reason=reason)
        own, products = self._own(entry.name, tensor, mark), self._products(entry.name)
        return replace(row, matrices=(*own, *products))

    def _own(self, name: str, tensor: Tensor, mark: bytes | None) -> tuple[MatrixRow, ...]:
        """Reuse the spectra of an identical tensor, unless its name implies another packing."""
        packing = packing_of(name, self._shapes, self._configuration)
        key = None if mark is None or tensor.ndim > 2 else (mark, packing)
        if key in self._seen:
            return self._seen[key]
        rows = _rows(views(name, tensor, packing, self._options))
        if key is not None:
            self._seen[key] = rows
        return rows

    def _products(self, name: str) -> tuple[MatrixRow, ...]:
        block = self._blocks.get(name)
        if block is None or not all(map(self._is_usable, block.factors(name))):
            return ()
        return _rows(block.spectra(name, self._read))

    def _is_usable(self, name: str) -> bool:
        """The row of a factor that is not usable says why."""
        if reason_before_reading(self._entries[name]) is not None:
            return False
        return reason_in_entries(self._read(name)) is None

    def _reason(self, tensor: Tensor) -> str | None:
        shape, limit = tuple(tensor.shape), self._options.memory_limit
        return reason_of_size(shape, tensor.dtype, limit) or reason_in_entries(tensor)

    def _read(self, name: str) -> Tensor:
        return cast(Tensor, self._source.read(name))


def _rows(spectra: Iterator[tuple[str, Spectrum]]) -> tuple[MatrixRow, ...]:
    return tuple(spectrum.to_row(name) for name, spectrum in spectra)
