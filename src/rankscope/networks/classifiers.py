"""Tensor-train, CP and tree classifiers: one contraction each, rescaled at every step."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Index, IndexKind
from rankscope.errors import SizeError
from rankscope.networks.features import PatchFeatures
from rankscope.rank.networks.convolutional import ConvolutionalCircuit, Levels, Shallow
from rankscope.rank.networks.network import PolynomialNetwork, require_sizes
from rankscope.rank.networks.tensor_train import TensorTrain

# --- What the tensor-network classifiers share: scores with their scale, and exact counterparts


# The logarithm from which on logits do not grow: a softmax of such differences is 0 or 1 anyway,
# and float32 ends at e^88.
LARGEST_LOG_SCALE = 64.0


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of classes, each sample with a scale of its own, so that none is out of range.

    Args:
        values: (batch, classes).
        log_scale: (batch,); the scores are `values` times its exponential.
    """

    values: Tensor
    log_scale: Tensor

    @classmethod
    def of(cls, values: Tensor, log_scale: Tensor) -> "Scores":
        """Scores whose largest value is of size 1."""
        sized, log_size = rescale(values)
        return cls(sized, log_scale + log_size)

    def logits(self) -> Tensor:
        """The scores themselves (batch, classes); a scale beyond e^64 counts as e^64."""
        return self.values * self.log_scale.clamp(max=LARGEST_LOG_SCALE).exp()[:, None]


class TensorNetworkClassifier(nn.Module, ABC):
    """A classifier whose scores are linear in the feature vector of each patch.

    The separation rank of a score over the patches is that of its `score_network`, whenever the
    features are linearly independent functions of a patch.

    Attributes:
        features: of the patches.
        num_classes: how many scores there are.
    """

    features: PatchFeatures
    num_classes: int

    @abstractmethod
    def contract(self, features: Tensor) -> Scores:
        """The scores of features (patches, batch, features)."""

    @abstractmethod
    def score_network(self, label: int) -> PolynomialNetwork:
        """The score of one class as a function of the features, with a copy of the weights.

        It has bounds and an exact separation rank: `measure_rank(network, partition,
        weights=dict(network.named_parameters()))`.

        Raises:
            SizeError: if there is no such class.
        """

    @abstractmethod
    def diagram(self) -> Diagram:
        """All scores of one sample; its features are rows of an array (patches, features)."""

    def scores(self, images: Tensor) -> Scores:
        """The scores of images (batch, channels, height, width), with their scale."""
        return self.contract(self.features(images))

    def forward(self, images: Tensor) -> Tensor:
        """The scores (batch, classes), to be used as logits."""
        return self.scores(images).logits()

    def require_label(self, label: int) -> None:
        """Refuse a class that there is not.

        Raises:
            SizeError: if there is none of that number.
        """
        if not 0 <= label < self.num_classes:
            raise SizeError(
                f"{type(self).__name__} has the classes 0..{self.num_classes - 1}, got {label}."
            )


def rescale(values: Tensor) -> tuple[Tensor, Tensor]:
    """Values (…, channels) whose largest is of size 1, and the logarithms of the sizes (…).

    Sizes are constants to the gradient: what is divided here is multiplied again in the end.
    """
    size = values.detach().abs().amax(dim=-1, keepdim=True)
    size = size.masked_fill(size == 0, 1.0)
    return values / size, size[..., 0].log()


def product_of_pairs(nodes: Tensor) -> Tensor:
    """Products of neighbours along the first position; an odd one at the end stays."""
    products = nodes[0 : len(nodes) - 1 : 2] * nodes[1::2]
    return products if len(nodes) % 2 == 0 else torch.cat([products, nodes[-1:]])


def with_classes(diagram: Diagram, last: str, num_classes: int) -> Diagram:
    """The diagram of a score as that of all scores: one of its nodes also holds the classes."""
    nodes = [
        replace(node, indices=(*node.indices, "y")) if node.name == last else node
        for node in diagram.nodes
    ]
    classes = Index("y", num_classes, "Y", IndexKind.FEATURE)
    return replace(
        diagram,
        nodes=tuple(nodes),
        indices=(*diagram.indices, classes),
        output=("y",),
        title=f"{diagram.title}, {num_classes} classes",
    )


# --- The inner steps of a tensor train, forward and backward, as few large matrix products --------


# Rows of outer products at a time: as many as stay in the cache.
_ROWS = 256


def carry_through_train(state: Tensor, features: Tensor, cores: Tensor) -> tuple[Tensor, Tensor]:
    r"""Carry a state through a chain of cores, without overflow.

    .. math:: h_t = \sum_{l,i} h_{t-1,l}\, f_{t,i}\, G_t[l, i, :]

    Args:
        state: (batch, bond), before the first step.
        features: (steps, batch, size), one vector for each step.
        cores: (steps, bond, size, bond), or one for all steps (1, bond, size, bond).

    Returns:
        The last state (batch, bond) but for a positive factor for each sample, and the logarithm
        of that factor (batch,). To the gradient the factors are constants, so that only the
        product of the two has the gradient of the last state.

    Raises:
        SizeError: if the shapes do not fit.
    """
    steps, batch, size = features.shape
    bond = state.shape[1]
    shapes = [(count, bond, size, bond) for count in (steps, 1)]
    if state.shape[0] != batch or tuple(cores.shape) not in shapes:
        raise SizeError(
            f"carry_through_train: features {tuple(features.shape)} and a state "
            f"{tuple(state.shape)} "
            f"need a state ({batch}, bond) and cores (1 or {steps}, {bond}, {size}, {bond}), got "
            f"cores {tuple(cores.shape)}."
        )
    last, log_scale = _Train.apply(state, features.contiguous(), cores)  # type: ignore[no-untyped-call]
    return last, log_scale


class _Train(torch.autograd.Function):
    """States and gradients of states one after the other; all other gradients many at once."""

    @staticmethod
    def forward(
        context: Any, state: Tensor, features: Tensor, cores: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps, batch, size = features.shape
        bond = state.shape[1]
        states = features.new_empty(steps + 1, batch, bond)
        scales = features.new_empty(steps, batch, 1)
        outer = features.new_empty(batch, bond, size)
        states[0] = state
        matrices = cores.reshape(-1, bond * size, bond)
        for step in range(steps):
            now, scale = states[step], scales[step]
            torch.amax(now.abs(), dim=1, keepdim=True, out=scale)
            now.div_(scale.masked_fill_(scale == 0, 1.0))
            torch.mul(now[:, :, None], features[step, :, None, :], out=outer)
            torch.mm(outer.view(batch, -1), matrices[step % len(cores)], out=states[step + 1])
        log_scale = scales.log().sum(dim=(0, 2))
        context.save_for_backward(states, features, cores, scales)
        context.mark_non_differentiable(log_scale)
        return states[steps].clone(), log_scale

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states, features, cores, scales = context.saved_tensors
        gradients = _state_gradients(gradient, features, cores, scales)
        of_features, of_cores = _other_gradients(states, gradients, features, cores)
        return gradients[0], of_features, of_cores


def _state_gradients(gradient: Tensor, features: Tensor, cores: Tensor, scales: Tensor) -> Tensor:
    """Gradients (steps + 1, batch, bond) of all states, the first before its rescaling."""
    steps, batch, size = features.shape
    bond = gradient.shape[1]
    gradients = features.new_empty(steps + 1, batch, bond)
    outer = features.new_empty(batch, size, bond)
    gradients[steps] = gradient
    matrices = cores.reshape(-1, bond, size * bond).transpose(1, 2)
    for step in range(steps - 1, -1, -1):
        torch.mul(features[step, :, :, None], gradients[step + 1, :, None, :], out=outer)
        torch.mm(outer.view(batch, -1), matrices[step % len(cores)], out=gradients[step])
        gradients[step].div_(scales[step])
    return gradients


def _other_gradients(
    states: Tensor, gradients: Tensor, features: Tensor, cores: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the features and of the cores, several steps of equal cores at a time."""
    steps, batch, size = features.shape
    bond = states.shape[2]
    at_once = 1 if len(cores) > 1 else max(1, _ROWS // batch)
    of_features = torch.empty_like(features)
    of_cores = features.new_zeros(len(cores), size, bond * bond)
    matrices = cores.transpose(2, 3).reshape(-1, bond * bond, size)
    outer = features.new_empty(at_once, batch, bond, bond)
    for start in range(0, steps, at_once):
        end = min(start + at_once, steps)
        before, after = states[start:end, :, :, None], gradients[start + 1 : end + 1, :, None, :]
        rows = torch.mul(before, after, out=outer[: end - start]).view(-1, bond * bond)
        core = start % len(cores)
        torch.mm(rows, matrices[core], out=of_features[start:end].view(-1, size))
        of_cores[core].addmm_(features[start:end].view(-1, size).T, rows)
    return of_features, of_cores.view(-1, size, bond, bond).transpose(1, 2)


# --- Classification by a sum of products over all patches: the CP form ----------------------------


class ShallowClassifier(TensorNetworkClassifier):
    r"""Channels that each multiply one linear form of every patch, mixed for each class.

    .. math:: s_y = \sum_{z=1}^Z a_{zy} \prod_i \langle v^{i,z}, f(x_i) \rangle

    Args:
        features: of the patches, at least two; their first one is 1.
        channels: number of products, Z.
        num_classes: how many scores there are.
        generator: where the initial weights come from: all products are near 1.

    Example:
        >>> features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=5)
        >>> ShallowClassifier(features, channels=3, num_classes=10)(torch.ones(7, 1, 8, 8)).shape
        torch.Size([7, 10])

    Raises:
        SizeError: if a size is not positive, or there is only one patch.

    Reference:
        Cohen et al. (2016), arXiv:1509.05009.
    """

    def __init__(
        self,
        features: PatchFeatures,
        *,
        channels: int,
        num_classes: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        order, size = features.num_patches, features.num_features
        require_sizes("ShallowClassifier", least=2, num_patches=order)
        require_sizes("ShallowClassifier", channels=channels, num_classes=num_classes)
        self.features, self.num_classes, self.channels = features, num_classes, channels
        self.factors = nn.Parameter(near_one((order, channels, size), math.sqrt(order), generator))
        mixing = torch.randn(channels, num_classes, generator=generator)
        self.mixing = nn.Parameter(mixing / math.sqrt(channels * order))

    def contract(self, features: Tensor) -> Scores:
        """The scores of features (patches, batch, features)."""
        products, log_scale = rescale(features @ self.factors.transpose(1, 2))
        log_scale = log_scale.sum(dim=0)
        while len(products) > 1:
            products, change = rescale(product_of_pairs(products))
            log_scale = log_scale + change.sum(dim=0)
        return Scores.of(products[0] @ self.mixing, log_scale)

    def score_network(self, label: int) -> Shallow:
        """The score of one class, with a copy of the weights.

        Raises:
            SizeError: if there is no such class.
        """
        self.require_label(label)
        shallow = Shallow(
            order=self.features.num_patches,
            size=self.features.num_features,
            channels=self.channels,
        ).to(self.factors)
        with torch.no_grad():
            shallow.factors.copy_(self.factors)
            shallow.mixing.copy_(self.mixing[:, label])
        return shallow

    def diagram(self) -> Diagram:
        """The CP form; the mixing weights also hold the classes."""
        return with_classes(self.score_network(0).diagram(), "mixing", self.num_classes)


def near_one(
    shape: tuple[int, int, int], parts: float, generator: torch.Generator | None
) -> Tensor:
    """Linear forms (nodes, channels, size): 1 at the constant, and one part in `parts` of noise."""
    forms = torch.randn(shape, generator=generator) / math.sqrt(shape[2]) / parts
    forms[:, :, 0] += 1.0
    return forms


# --- Classification by a tree of products: the convolutional circuit, or hierarchical Tucker form


class HierarchicalClassifier(TensorNetworkClassifier):
    r"""Linear maps of every node and products of two neighbours, in turns, up to one node.

    .. math:: u^{0,j} = a^{0,j} f(x_j), \qquad p^{l,k} = u^{l,2k} * u^{l,2k+1}, \qquad
              u^{l+1,k} = a^{l+1,k} p^{l,k}, \qquad s = p^{L-1,0}\, a^L

    Neighbours are so in the order of the patches; where their number is odd, the last is alone.

    Args:
        features: of the patches, at least two; their first one is 1.
        channels: of every level.
        num_classes: how many scores there are.
        is_shared: whether the nodes of a level share one linear map.
        generator: where the initial weights come from: maps of patches are near 1, and all others
            near the identity.

    Example:
        >>> features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=5)
        >>> classifier = HierarchicalClassifier(features, channels=3, num_classes=10)
        >>> classifier(torch.ones(7, 1, 8, 8)).shape, len(classifier.convolutions)
        (torch.Size([7, 10]), 4)

    Raises:
        SizeError: if a size is not positive, or there is only one patch.

    Reference:
        Cohen et al. (2016), arXiv:1509.05009.
    """

    def __init__(
        self,
        features: PatchFeatures,
        *,
        channels: int,
        num_classes: int,
        is_shared: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        order, size = features.num_patches, features.num_features
        require_sizes("HierarchicalClassifier", least=2, num_patches=order)
        require_sizes("HierarchicalClassifier", channels=channels, num_classes=num_classes)
        self.features, self.num_classes = features, num_classes
        self.channels, self.is_shared = channels, is_shared
        counts = [order, *(len(windows) for windows in binary_pooling(order)[:-1])]
        nodes = [1] * len(counts) if is_shared else counts
        # Noise adds up faster where it is the same everywhere.
        parts = float(order) if is_shared else math.sqrt(order)
        maps = [near_one((nodes[0], channels, size), parts, generator)]
        for count in nodes[1:]:
            noise = torch.randn(count, channels, channels, generator=generator)
            maps.append(torch.eye(channels) + noise / math.sqrt(channels) / parts)
        self.convolutions = nn.ParameterList(maps)
        output = torch.randn(channels, num_classes, generator=generator)
        self.output = nn.Parameter(output / math.sqrt(channels * order))

    def contract(self, features: Tensor) -> Scores:
        """The scores of features (patches, batch, features)."""
        nodes, log_scale = features, features.new_zeros(features.shape[1])
        for maps in self.convolutions:
            mapped, size = rescale(nodes @ maps.transpose(1, 2))
            log_scale = log_scale + size.sum(dim=0)
            nodes = product_of_pairs(mapped)
        return Scores.of(nodes[0] @ self.output, log_scale)

    def score_network(self, label: int) -> ConvolutionalCircuit:
        """The score of one class, with a copy of the weights.

        Raises:
            SizeError: if there is no such class.
        """
        self.require_label(label)
        circuit = ConvolutionalCircuit(
            num_tokens=self.features.num_patches,
            num_templates=self.features.num_features,
            channels=(self.channels,) * len(self.convolutions),
            is_shared=self.is_shared,
            pooling=binary_pooling(self.features.num_patches),
        ).to(self.output)
        with torch.no_grad():
            for kept, maps in zip(circuit.convolutions, self.convolutions, strict=True):
                kept.copy_(maps[0] if self.is_shared else maps)
            circuit.output.copy_(self.output[:, label])
        return circuit

    def diagram(self) -> Diagram:
        """The tree; its root also holds the classes."""
        return with_classes(self.score_network(0).diagram(), "output", self.num_classes)


def binary_pooling(num_tokens: int) -> Levels:
    """Windows of two neighbours, level by level; an odd one at the end is alone.

    Example:
        >>> binary_pooling(3)
        (((0, 1), (2,)), ((0, 1),))
    """
    levels = []
    while num_tokens > 1:
        starts = range(0, num_tokens, 2)
        levels.append(tuple(tuple(range(start, min(start + 2, num_tokens))) for start in starts))
        num_tokens = len(starts)
    return tuple(levels)


# --- Classification by a tensor train that reads an image patch by patch --------------------------


class TrainClassifier(TensorNetworkClassifier):
    r"""A state that every patch multiplies by a matrix linear in its features.

    .. math:: h_1 = G_1^T f(x_1), \qquad h_t = \sum_i f_i(x_t)\, G_t[:, i, :]^T h_{t-1}, \qquad
              s_y = \sum_{l,i} h_{d-1,l} f_i(x_d)\, G_d[l, i, y]

    Args:
        features: of the patches, at least three; their first one is 1.
        bond: size of the state.
        num_classes: how many scores there are.
        has_equal_cores: whether all cores but the first and the last are the same one.
        generator: where the initial cores come from: the constant feature leaves the state as it
            is, and all others together change it by about its own size over the whole train.

    Example:
        >>> features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=5)
        >>> TrainClassifier(features, bond=3, num_classes=10)(torch.ones(7, 1, 8, 8)).shape
        torch.Size([7, 10])

    Raises:
        SizeError: if a size is not positive, or there are fewer than three patches.

    Reference:
        Khrulkov et al. (2018), arXiv:1711.00811; Alkin (2024) for equal cores.
    """

    def __init__(
        self,
        features: PatchFeatures,
        *,
        bond: int,
        num_classes: int,
        has_equal_cores: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        order, size = features.num_patches, features.num_features
        require_sizes("TrainClassifier", least=3, num_patches=order)
        require_sizes("TrainClassifier", bond=bond, num_classes=num_classes)
        self.features, self.num_classes = features, num_classes
        self.bond, self.has_equal_cores = bond, has_equal_cores

        def noise(*shape: int) -> Tensor:
            # A step changes the state by one part in √order, or in order where all are the same.
            parts = order if has_equal_cores else math.sqrt(order)
            return torch.randn(shape, generator=generator) / math.sqrt(size) / parts

        inner = noise(1 if has_equal_cores else order - 2, bond, size, bond) / math.sqrt(bond)
        inner[:, :, 0] += torch.eye(bond)
        first = noise(size, bond)
        first[0] += 1.0
        self.first = nn.Parameter(first)
        self.inner = nn.Parameter(inner)
        self.last = nn.Parameter(noise(bond, size, num_classes) / math.sqrt(bond))

    def contract(self, features: Tensor) -> Scores:
        """The scores of features (patches, batch, features)."""
        state, log_scale = carry_through_train(features[0] @ self.first, features[1:-1], self.inner)
        outer = state[:, :, None] * features[-1][:, None, :]
        return Scores.of(outer.flatten(1) @ self.last.flatten(0, 1), log_scale)

    def score_network(self, label: int) -> TensorTrain:
        """The score of one class, with a copy of the weights.

        Raises:
            SizeError: if there is no such class.
        """
        self.require_label(label)
        train = TensorTrain(
            order=self.features.num_patches,
            size=self.features.num_features,
            bond=self.bond,
            has_equal_cores=self.has_equal_cores,
        ).to(self.first)
        cores = (self.first[None], *self.inner, self.last[:, :, label, None])
        with torch.no_grad():
            for kept, core in zip(train.cores, cores, strict=True):
                kept.copy_(core)
        return train

    def diagram(self) -> Diagram:
        """The train; its last core also holds the classes."""
        train = self.score_network(0).diagram()
        cores, inputs = (
            train.nodes[: self.features.num_patches],
            train.nodes[len(train.nodes) // 2 :],
        )
        inner = [
            replace(core, array="inner", rows=(0, 1) if self.has_equal_cores else (t, t + 1))
            for t, core in enumerate(cores[1:-1])
        ]
        nodes = (
            replace(cores[0], array="first"),
            *inner,
            replace(cores[-1], array="last"),
            *inputs,
        )
        return with_classes(replace(train, nodes=nodes), cores[-1].name, self.num_classes)
