"""The matrices worth seeing in a tensor, and why some tensors have none."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rankscope.auditing.convolutions import Geometry, convolution_spectrum, depthwise, image_side
from rankscope.auditing.packing import Packing
from rankscope.auditing.parts import part_of
from rankscope.auditing.singular_values import matrix_spectrum, working_memory
from rankscope.auditing.sources import TensorEntry
from rankscope.auditing.spectra import Spectrum
from rankscope.errors import SizeError

_MOST_AXES = 5
_ENTRIES_AT_ONCE = 2**22


@dataclass(frozen=True)
class WeightOptions:
    """How weights are looked at.

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
    not_numbers = infinite = 0
    for piece in torch.split(tensor.flatten(), _ENTRIES_AT_ONCE):
        # Not every short dtype can be asked.
        entries = piece.float() if piece.element_size() < 4 else piece
        not_numbers += int(entries.isnan().sum())
        infinite += int(entries.isinf().sum())
    if not_numbers == infinite == 0:
        return None
    verb = "is" if not_numbers == 1 else "are"
    return f"{not_numbers:,} of {tensor.numel():,} entries {verb} NaN, {infinite:,} infinite"


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
