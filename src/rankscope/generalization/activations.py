"""What is measured on data: how long the inputs of every layer are, in one forward pass."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.errors import GeneralizationError
from rankscope.generalization.sample import Sample
from rankscope.generalization.walk import Walk, batches
from rankscope.progress import Progress, Report, ignore

BATCH_SIZE = 100


@dataclass(frozen=True, eq=False)
class Activations:
    """A network on a sample.

    Args:
        inputs: norms of the input of every layer, (samples, layers), float64.
        outputs: of the network, (samples, classes).
        labels: (samples).
    """

    inputs: Tensor
    outputs: Tensor
    labels: Tensor

    @property
    def lengths(self) -> Tensor:
        """Norms of the inputs of every layer, and of the outputs, (samples, layers + 1)."""
        outputs = torch.linalg.vector_norm(self.outputs.double(), dim=1, keepdim=True)
        return torch.cat([self.inputs, outputs], dim=1)

    @property
    def growths(self) -> Tensor:
        r"""The smallest growth from each layer's input to the next one's, (layers).

        .. math:: c_k = \min_{x \in S} \lVert X^{(k+1)} \rVert / \lVert X^{(k)} \rVert

        where the next of the last layer is the network's output. The next input lies behind the
        activation. It is the cushion times the norm of the weight, and all that the theorem uses
        of it. Layers are taken in the order in which they run, also in networks that are no
        chains: that norms of inputs are at most that of the output over the product of all later
        c needs no more. A layer that sends a sample to zero has c = 0.
        """
        before, after = self.lengths[:, :-1], self.lengths[:, 1:]
        # What is zero already needs no cushion.
        return torch.where(before > 0, after / before, torch.inf).amin(dim=0)

    @property
    def largest_output(self) -> float:
        """The longest output of the network, max ‖M(x)‖."""
        return float(self.lengths[:, -1].max())


def measure_activations(
    walk: Walk, sample: Sample, *, batch_size: int = BATCH_SIZE, report: Report = ignore
) -> Activations:
    """Run a network once over a sample, in batches, and keep norms and outputs only.

    Raises:
        GeneralizationError: if labels are no classes, or an output is not finite.
    """
    sample.require_classes(walk.num_classes)
    like = next(walk.layers[0].module.parameters(), sample.inputs)
    lengths, outputs = [], []
    wanted = [layer.input for layer in walk.layers]
    total = -(-len(sample) // batch_size)
    with torch.no_grad():
        for number, piece in enumerate(batches(sample.inputs, like, batch_size)):
            found = {}
            for value, tensor in walk.run(piece):
                if value in wanted:
                    found[value] = _lengths(tensor)
            lengths.append(torch.stack([found[value] for value in wanted], dim=1))
            outputs.append(tensor)
            report(Progress("activations", number + 1, total))
    result = Activations(torch.cat(lengths).double(), torch.cat(outputs), sample.labels)
    if not bool(torch.isfinite(result.lengths).all()):
        wrong = int((~torch.isfinite(result.lengths)).any(dim=1).sum())
        raise GeneralizationError(
            f"Activations are not finite on {wrong:,} of {len(sample):,} samples, so that nothing "
            "can be said."
        )
    return result


def _lengths(tensor: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(tensor, dim=tuple(range(1, tensor.ndim)))
    return lengths


def cushions(walk: Walk, activations: Activations) -> Tensor:
    r"""Layer cushions ζ, (layers).

    .. math:: \zeta_k \lVert M_k \rVert_F \lVert X^{(k)} \rVert \le \lVert X^{(k+1)} \rVert
              \quad \text{for all } x \in S

    with the norm of the kernel (of the scale of a folded normalization as well). 0 for a dead
    layer.

    Reference:
        Li, Sun, Su, Suzuki & Huang (2020), Sec. 4 (as recalled), arXiv:2001.05070.
    """
    norms = torch.stack([layer.components.to_dense().norm() for layer in walk.layers])
    return torch.where(norms > 0, activations.growths / norms, 0.0)
