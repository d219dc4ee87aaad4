"""Ranks as small as the sample itself allows: outputs are compared instead of bounded."""

from torch import nn

from rankscope.generalization.activations import BATCH_SIZE, Activations
from rankscope.generalization.compressed_network import compressed_network, outputs_of
from rankscope.generalization.rank_search import RankChoice, Search, choose_ranks
from rankscope.generalization.sample import Sample, require_margin
from rankscope.generalization.walk import Walk
from rankscope.progress import Progress, Report, ignore


def find_measured_ranks(  # noqa: PLR0913 - what find_ranks takes, and what g is run on
    model: nn.Module,
    walk: Walk,
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
        walk: what was read.
        activations: of the network on the sample.
        sample: what g is run on, once for each step of each bisection.
        margin: γ.
        search: its tolerance, and the form of the properties in the result.
        batch_size: of the runs.
        report: told of every layer.

    Raises:
        GeneralizationError: if the margin is not positive.

    Reference:
        Arora, Ge, Neyshabur & Zhang (2018), Def. 1 (what a sample must show), arXiv:1802.05296.
    """
    require_margin(margin)
    how = search or Search()
    ranks = [layer.rank for layer in walk.layers]

    def lost(tried: list[int]) -> float:
        network = compressed_network(model, walk, tried)
        outputs = outputs_of(network, sample.inputs, batch_size=batch_size)
        return float(how.tolerance.lost((outputs - activations.outputs).double()).max())

    count = len(ranks)
    order = sorted(range(count), key=lambda number: walk.layers[number].shape.num_parameters)
    for done, number in enumerate(order, start=1):
        share = how.tolerance.threshold(margin) * done / count
        low, high = 0, ranks[number]
        while high - low > 1:
            middle = (low + high) // 2
            tried = [*ranks[:number], middle, *ranks[number + 1 :]]
            low, high = (low, middle) if lost(tried) <= share else (middle, high)
        ranks[number] = high
        report(Progress("ranks", done, count))
    return choose_ranks(walk, ranks, form=how.form)
