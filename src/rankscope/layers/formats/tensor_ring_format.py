"""One core for the inputs, each position of the kernel, and the outputs, in a ring."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rankscope.decompositions.tensor_ring import decompose_tensor_ring, limited_ring_bonds
from rankscope.decompositions.truncation import Bonds
from rankscope.layers.formats.format import Ranks, WeightShape
from rankscope.layers.formats.interpolation import interpolated_errors
from rankscope.layers.formats.plain import Legs, PlainFormat
from rankscope.layers.formats.tensor_train_format import TensorTrainFormat

_TRAIN = TensorTrainFormat()

_SHORT = 2  # sweeps of a fit that only estimates an error


@dataclass(frozen=True)
class TensorRingFormat(PlainFormat):
    r"""A tensor ring over inputs, height, width and outputs, in this order, and back.

    .. math:: K_{t s h w} = \sum_{p q r u} O_{t u r} W_{r q w} H_{q p h} I_{u p s}

    with `input` I, `height` H, `width` W, `output` O and ranks (p, q, r, u), of which u closes the
    ring. A kernel with one position has no W and no r. In the chain, u stays with the state: H and
    W see u samples for each one.

    Reference:
        Zhao, Zhou, Xie, Zhang & Cichocki (2016), Tensor ring decomposition, arXiv:1606.05535;
        Wang, Sun, Eriksson, Wang & Aggarwal (2018), Wide compression: tensor ring nets,
        arXiv:1802.09052.
    """

    name: ClassVar[str] = "tensor-ring"

    def legs(self, shape: WeightShape) -> Legs:
        train = _TRAIN.legs(shape)
        last = train["output"][1]
        return {**train, "input": ("u", "p", "s"), "output": ("t", "u", last)}

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return (*_TRAIN.bonds(shape), "u")

    def full_ranks(self, shape: WeightShape) -> Ranks:
        """Those of a train, which needs no closing bond."""
        return (*_TRAIN.full_ranks(shape), 1)

    def max_ranks(self, shape: WeightShape) -> Ranks:
        train = _TRAIN.full_ranks(shape)
        return (*train, max(train))

    def is_useful(self, shape: WeightShape, ranks: Ranks) -> bool:
        return limited_ring_bonds((shape.in_size, *shape.kernel, shape.out_size), ranks) == ranks

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        found = decompose_tensor_ring(weight.movedim(0, -1), Bonds(ranks), seed=seed)
        first, *middle, last = found.cores
        turned = (
            first.permute(0, 2, 1),
            *(core.permute(2, 0, 1) for core in middle),
            last.permute(1, 2, 0),
        )
        return dict(zip(self.legs(WeightShape.of(weight)), turned, strict=True))

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Estimates, interpolated from a few short fits; `decompose` looks longer."""
        shape, tensor = WeightShape.of(weight), weight.movedim(0, -1)
        return interpolated_errors(
            [self.num_parameters(shape, ranks) for ranks in ladder],
            lambda place: (
                decompose_tensor_ring(
                    tensor, Bonds(ladder[place]), sweeps=_SHORT, seed=seed
                ).relative_error
            ),
            num_entries=shape.num_parameters,
        )

    @property
    def input_core(self) -> tuple[str, int]:
        return ("input", 2)

    @property
    def output_core(self) -> str:
        return "output"
