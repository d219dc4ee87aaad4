"""The components of a CP layer as unit vectors, each with its weight, largest first."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from rankscope.errors import LayerError
from rankscope.layers.formats.format import Cores, WeightShape


class CPComponents(NamedTuple):
    r"""A weight as a sum of outer products of unit vectors, largest first.

    .. math:: K_{o s h w} = \sum_r \lambda_r \, b_{r o} \, a_{r s} \, C_{r h w},
              \qquad \lVert a_r \rVert = \lVert b_r \rVert = \lVert C_r \rVert_F = 1

    Args:
        weights: λ (components), descending and not negative.
        inputs: a (components, in_size).
        outputs: b (components, out_size).
        kernels: C (components, *kernel); of a matrix a one for each component.
    """

    weights: Tensor
    inputs: Tensor
    outputs: Tensor
    kernels: Tensor

    @property
    def shape(self) -> WeightShape:
        """Of the weight that they stand for."""
        return WeightShape(
            self.outputs.shape[1], self.inputs.shape[1], tuple(self.kernels.shape[1:])
        )

    def taken(self, numbers: Tensor | slice) -> "CPComponents":
        """Some of the components, in the order given."""
        return CPComponents(*(part[numbers] for part in self))

    def scaled_outputs(self, scale: Tensor) -> tuple["CPComponents", Tensor]:
        """Those of the weight whose outputs are scaled, and where each of them was before.

        Args:
            scale: (out_size), as inference batch normalization scales channels.
        """
        return sorted_components(
            self.inputs, self.outputs * scale, self.kernels * _along(self.weights, self.kernels)
        )

    def to_dense(self) -> Tensor:
        """The weight (out_size, in_size, *kernel)."""
        flat = self.kernels.reshape(len(self.weights), -1)
        weight = torch.einsum("r,ro,rs,rp->osp", self.weights, self.outputs, self.inputs, flat)
        return weight.reshape(self.shape.sizes)


def sorted_components(
    inputs: Tensor, outputs: Tensor, kernels: Tensor
) -> tuple[CPComponents, Tensor]:
    """Unit vectors and weights, largest first, and the number that each component had before.

    Components of weight zero keep zero vectors; of equal ones the earlier comes first.
    """
    parts, norms = [inputs, outputs, kernels], []
    for place, part in enumerate(parts):
        norm = torch.linalg.vector_norm(part.reshape(len(part), -1), dim=1)
        norms.append(norm)
        parts[place] = part / _along(norm.where(norm > 0, norm.new_ones(())), part)
    weights = norms[0] * norms[1] * norms[2]
    order = torch.sort(weights, descending=True, stable=True).indices
    return CPComponents(weights, *parts).taken(order), order


def cp_components(
    name: str, cores: Cores, shape: WeightShape, groups: int = 1
) -> tuple[CPComponents, Tensor]:
    """Read the cores of CP, or of the SVD where there is no kernel, as components.

    Args:
        name: of the format.
        cores: as the layer holds them.
        shape: of the weight of one group.
        groups: of the convolution.

    Returns:
        The components, and the number of each among the cores.

    Raises:
        LayerError: if the weight is written in another way, or in groups.
    """
    if not is_cp(name, shape) or groups != 1:
        raise LayerError(
            f"normalized: a weight {shape.sizes} as {name} in {groups} group(s) is no sum of outer "
            "products; wanted cp, or svd of a matrix, in one group."
        )
    return sorted_components(*_parts(cores, shape))


def is_cp(name: str, shape: WeightShape) -> bool:
    """Whether a weight so written is a sum of outer products."""
    return name == "cp" or (name == "svd" and math.prod(shape.kernel) == 1)


def _parts(cores: Cores, shape: WeightShape) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, outputs and kernels, one row for each component."""
    if "kernel" in cores:
        return cores["input"], cores["output"].T, cores["kernel"]
    right, left = cores["right"].flatten(1), cores["left"].flatten(1)
    return right, left.T, right.new_ones(len(right), *shape.kernel)


def cores_of(components: CPComponents) -> Mapping[str, Tensor]:
    """Cores of CP, or of the SVD where there is no kernel; all parts of a component alike long."""
    shape = components.shape
    is_matrix = math.prod(shape.kernel) == 1
    share = components.weights ** (1 / 2 if is_matrix else 1 / 3)
    inputs, outputs = components.inputs * share[:, None], (components.outputs * share[:, None]).T
    if not is_matrix:
        kernels = components.kernels * _along(share, components.kernels)
        return {"input": inputs, "kernel": kernels, "output": outputs}
    inner, outer = shape.kernel[:1], shape.kernel[1:]
    signs = components.kernels.reshape(-1, 1)  # a kernel of one place is +1 or -1
    return {
        "right": (inputs * signs).reshape(*inputs.shape, *inner),
        "left": outputs.reshape(*outputs.shape, *outer),
    }


def _along(numbers: Tensor, like: Tensor) -> Tensor:
    return numbers.reshape(-1, *[1] * (like.ndim - 1))
