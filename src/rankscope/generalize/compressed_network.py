"""The network g that keeps some components of every layer, and how far it is from f on a sample."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import GeneralizationError
from rankscope.factorize.layer import cores_of
from rankscope.factorize.linear import FactorizedLinear
from rankscope.generalize.layer_trace import (
    BATCH_SIZE,
    Activations,
    CPLayer,
    CPModule,
    LayerTrace,
    batches,
)
from rankscope.generalize.rank_search import RankChoice, Search, choose_ranks
from rankscope.generalize.sample import Sample, Tolerance, require_margin
from rankscope.progress import Progress, Report, ignore

_NORMALIZATIONS = (nn.BatchNorm1d, nn.BatchNorm2d)


def compressed_network(model: nn.Module, trace: LayerTrace, ranks: Sequence[int]) -> nn.Module:
    """A copy, in inference mode, whose layers keep their first components.

    Batch normalizations that were folded into a layer when it was measured are folded in the copy
    too, where they are modules of their own: it has fewer numbers then, and computes the same.

    Args:
        model: the network that was read.
        trace: what was read.
        ranks: how many components each layer keeps.
    """
    clone = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
    for layer, rank in zip(trace.layers, ranks, strict=True):
        path, normalization = layer.node.path, _normalization_of(clone, layer)
        if normalization is not None:
            _put(clone, normalization, nn.Identity())
        smaller = _keep_components(layer, rank, folds=normalization is not None)
        if not path:
            return smaller
        _put(clone, path, smaller)
    return clone


def _normalization_of(model: nn.Module, layer: CPLayer) -> str | None:
    """The path of the normalization behind a layer, if it is a module."""
    if layer.normalization is None:
        return None
    path = layer.normalization.path
    return path if path and type(model.get_submodule(path)) in _NORMALIZATIONS else None


def _put(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, own = path.rpartition(".")
    setattr(model.get_submodule(parent), own, module)


def _keep_components(layer: CPLayer, rank: int, *, folds: bool) -> CPModule:
    module = layer.module
    like = next(iter(module.cores.tensors().values()))
    bias: Tensor | None = module.bias
    if folds:
        cores = dict(cores_of(layer.components.taken(slice(rank))))
        # The same everywhere: what is added to zeros.
        bias = layer.constant().flatten(1)[0].reshape(module.shape.out_size, -1)[:, 0]
    else:
        cores = _select_components(module, layer.order[:rank])
    cores = {name: core.to(like) for name, core in cores.items()}
    if isinstance(module, FactorizedLinear):
        smaller: CPModule = FactorizedLinear.from_cores(
            cores, module.shape, module.format, (rank,), bias=bias
        )
    else:
        settings = module.settings
        smaller = type(module)(module.format, (rank,), module.shape, settings, cores, bias)
    return smaller.eval().requires_grad_(requires_grad=False)


def _select_components(module: CPModule, numbers: Tensor) -> dict[str, Tensor]:
    """Some components of the cores, where each core holds them along its bond."""
    cores = module.cores.tensors()
    places = {"output": 1, "left": 1}
    return {name: core.index_select(places.get(name, 0), numbers) for name, core in cores.items()}


@dataclass(frozen=True)
class Deviation:
    """The measured distance of g from f on the sample, beside its bound.

    Args:
        largest: of all entries, max |f(x)_i - g(x)_i|.
        euclidean: max ‖f(x) - g(x)‖.
        bound: the largest of the bounds (*) on ‖f(x) - g(x)‖.
        allowed: by the tolerance at the margin.
        lost_margin: the most that the margin of a sample can have lost, from what was measured.
        num_changed: samples whose class changed.
    """

    largest: float
    euclidean: float
    bound: float
    allowed: float
    lost_margin: float
    num_changed: int

    def to_dict(self) -> dict[str, float]:
        """Plain data for JSON."""
        return {
            "largest": self.largest,
            "euclidean": self.euclidean,
            "bound": self.bound,
            "allowed": self.allowed,
            "lost_margin": self.lost_margin,
            "num_changed": self.num_changed,
        }


def outputs_of(
    model: nn.Module,
    inputs: Tensor,
    *,
    batch_size: int = BATCH_SIZE,
    report: Report = ignore,
) -> Tensor:
    """A network's outputs, batch by batch, in inference mode; its mode is left as it was."""
    was_training = model.training
    total = -(-len(inputs) // batch_size)
    pieces: list[Tensor] = []
    model.eval()
    with torch.no_grad():
        for piece in batches(inputs, model, batch_size):
            pieces.append(model(piece))
            report(Progress("outputs", len(pieces), total))
    model.train(was_training)
    return torch.cat(pieces)


def check_deviation(
    compressed: Tensor,
    activations: Activations,
    choice: RankChoice,
    *,
    margin: float,
    tolerance: Tolerance,
) -> Deviation:
    """Compare the outputs of g with those of f, and with what (*) promises.

    Args:
        compressed: outputs of g on the sample.
        activations: of f on the same sample.
        choice: the ranks, whose bound is checked.
        margin: γ.
        tolerance: that ranks were chosen for.

    Raises:
        GeneralizationError: if a distance is above its bound by more than rounding: something that
            was proved is then not true, which is a bug.
    """
    difference = (compressed - activations.outputs).double()
    distances = torch.linalg.vector_norm(difference, dim=1)
    bounds = choice.error_bounds(activations)
    # Rounding grows with the depth, as the bound on differences itself does.
    unit = torch.finfo(activations.outputs.dtype).eps
    slack = 64 * len(choice.layers) * unit * (1 + activations.lengths.amax(dim=1))
    broken = distances > bounds * (1 + 1e-6) + slack
    if bool(broken.any()):
        worst = int((distances - bounds).argmax())
        raise GeneralizationError(
            f"check_deviation: on {int(broken.sum()):,} of {len(bounds):,} samples g is further "
            f"from f than proved: {float(distances[worst]):.6g} on sample {worst}, bound "
            f"{float(bounds[worst]):.6g}. Please report this as a bug."
        )
    return Deviation(
        float(difference.abs().max()),
        float(distances.max()),
        float(bounds.max()),
        tolerance.allowed(margin),
        float(tolerance.lost(difference).max()),
        int((compressed.argmax(dim=1) != activations.outputs.argmax(dim=1)).sum()),
    )


# --- Ranks as small as the sample itself allows ---------------------------------------------------


def find_measured_ranks(  # noqa: PLR0913 - what find_ranks takes, and what g is run on
    model: nn.Module,
    trace: LayerTrace,
    activations: Activations,
    sample: Sample,
    margin: float,
    *,
    search: Search | None = None,
    batch_size: int = BATCH_SIZE,
    report: Report = ignore,
) -> RankChoice:
    """Small ranks with which g keeps the margin on the sample.

    A compression bound asks that g is near f on the sample, not that this was proved, and (*) is
    loose by orders of magnitude. Layer by layer, from the one with the fewest parameters, the rank
    is bisected, while no margin loses more than the share of the layers treated so far. What is
    found is checked on every sample; that it is smallest is not claimed.

    Args:
        model: the network that was read.
        trace: what was read.
        activations: of the network on the sample.
        sample: what g is run on, once for each step of each bisection.
        margin: γ.
        search: its tolerance, and the form of the properties in the result.
        batch_size: of the runs.
        report: called after every layer.

    Raises:
        GeneralizationError: if the margin is not positive.

    Reference:
        Arora, Ge, Neyshabur & Zhang (2018), Def. 1 (what a sample must show), arXiv:1802.05296.
    """
    require_margin(margin)
    how = search or Search()
    ranks = [layer.rank for layer in trace.layers]

    def lost(tried: list[int]) -> float:
        network = compressed_network(model, trace, tried)
        outputs = outputs_of(network, sample.inputs, batch_size=batch_size)
        return float(how.tolerance.lost((outputs - activations.outputs).double()).max())

    count = len(ranks)
    order = sorted(range(count), key=lambda number: trace.layers[number].shape.num_parameters)
    for done, number in enumerate(order, start=1):
        share = how.tolerance.threshold(margin) * done / count
        low, high = 0, ranks[number]
        while high - low > 1:
            middle = (low + high) // 2
            tried = [*ranks[:number], middle, *ranks[number + 1 :]]
            low, high = (low, middle) if lost(tried) <= share else (middle, high)
        ranks[number] = high
        report(Progress("ranks", done, count))
    return choose_ranks(trace, ranks, form=how.form)
