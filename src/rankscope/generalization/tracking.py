"""Bounds during training: a callback that measures them beside the true test error.

    track = TrackBounds(train, test, margin=1.0)
    fit(model, loss, data, recipe, evaluate=EveryFewEpochs(track, 5))

Records of the run then hold its numbers for every fifth epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from rankscope.generalization.activations import BATCH_SIZE
from rankscope.generalization.analysis import Generalization, Options, analyse
from rankscope.generalization.compressed_network import outputs_of
from rankscope.generalization.properties import Exact, Triangle
from rankscope.generalization.rank_search import Search
from rankscope.generalization.sample import Sample, margin_loss, require_margin


def usual_searches() -> dict[str, Options]:
    """Ranks by the triangle form and the exact form (both proved), and measured on the sample."""
    return {
        "triangle": Options(search=Search(form=Triangle())),
        "exact": Options(search=Search(form=Exact())),
        "measured": Options(is_measured=True),
    }


@dataclass(frozen=True, eq=False)
class TrackBounds:
    """Measures a classifier on its training sample, and on samples that it was not trained on.

    Args:
        train: what it is trained on.
        test: new samples.
        margin: γ, the same throughout.
        searches: what is compared, by name; bounds that do not depend on ranks are taken from the
            first.

    Raises:
        GeneralizationError: if the margin is not positive.
    """

    train: Sample
    test: Sample
    margin: float
    searches: Mapping[str, Options] = field(default_factory=usual_searches)

    def __post_init__(self) -> None:
        require_margin(self.margin)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Errors as shares, bounds without constants, and the parameters that are left.

        The complexity of a bound is what it adds to the margin loss on the training sample.

        Bounds of others (arora-order, spectral-order) are there where they cover the network.
        """
        outputs = outputs_of(model, self.test.inputs, batch_size=BATCH_SIZE)
        found = {"test error": margin_loss(outputs, self.test.labels, 0.0)}
        for number, (name, options) in enumerate(self.searches.items()):
            count = options.num_jacobians if number == 0 else 0
            analysis = analyse(
                model, self.train, self.margin, options=replace(options, num_jacobians=count)
            )
            bound = analysis.bound("compression-order")
            constants = dict(bound.constants)
            found[name] = bound.value
            found[f"{name} complexity"] = constants["complexity"]
            found[f"{name} parameters"] = constants["parameters"]
            if number == 0:
                found.update(self._independent(analysis))
        return found

    def _independent(self, analysis: Generalization) -> dict[str, float]:
        """What does not depend on how ranks are searched for."""
        activations = analysis.activations
        found = {
            "train error": margin_loss(activations.outputs, activations.labels, 0.0),
            "margin loss": analysis.bound("compression-order").empirical,
        }
        for bound in analysis.bounds:
            if bound.name in ("arora-order", "spectral-order"):
                found[bound.name] = bound.value
                found[f"{bound.name} complexity"] = dict(bound.constants)["complexity"]
        return found
