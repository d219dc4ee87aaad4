"""How much a trained model joins the two halves of its context: spectrum, entropy, epsilon rank."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from rankscope.errors import ExperimentError
from rankscope.experiments.experiment import Row
from rankscope.separation.function_rank import FunctionRank, separation_rank
from rankscope.separation.pairing import FunctionOptions
from rankscope.separation.partition import Partition

# (batch, tokens) to (batch, outputs).
Outputs = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class SpectrumSettings:
    """What is measured.

    Args:
        num_inputs: contexts; every first half is paired with every second half.
        num_outputs: of the model, each by itself; the row has their means.
        epsilon: root mean square distance, in standard deviations of the output.
    """

    num_inputs: int = 40
    num_outputs: int = 3
    epsilon: float = 0.1


DEFAULT_SPECTRUM = SpectrumSettings()


def last_logits(model: nn.Module) -> Outputs:
    """The logits of what comes after the last token of a language model."""

    def outputs(tokens: Tensor) -> Tensor:
        logits: Tensor = model(tokens)[:, -1]
        return logits

    return outputs


def evenly(tokens: Tensor, count: int, length: int) -> Tensor:
    """So many windows (count, length) at even distances over a text.

    Example:
        >>> evenly(torch.arange(10), 3, 2).tolist()
        [[0, 1], [4, 5], [8, 9]]

    Raises:
        ExperimentError: if the text is too short for windows that differ.
    """
    if len(tokens) < length + count - 1:
        raise ExperimentError(
            f"evenly: {count} windows of {length} need at least {length + count - 1:,} symbols, "
            f"got {len(tokens):,}."
        )
    starts = torch.linspace(0, len(tokens) - length, count).long()
    return tokens[starts[:, None] + torch.arange(length)]


def spectrum_row(outputs: Outputs, inputs: Tensor, settings: SpectrumSettings) -> Row:
    """Entanglement entropy (nats), epsilon rank and spectrum between the halves of the inputs.

    Every output is scaled to mean 0 and standard deviation 1 on the inputs as they are, so that
    neither a constant, which is a product, nor the scale of the logits decides.

    Args:
        outputs: of a model in inference mode.
        inputs: (count, tokens); the left half of the tokens against the right half.
        settings: what is measured.

    Raises:
        ExperimentError: if an output is the same for all inputs.
    """
    found = [_measured(outputs, inputs, number, settings) for number in range(settings.num_outputs)]
    epsilons = [one.epsilon.upper for one in found if one.epsilon is not None]
    spectrum = torch.as_tensor(found[0].numeric.singular_values)
    return {
        "entanglement entropy": statistics.fmean(one.numeric.entanglement_entropy for one in found),
        "epsilon rank": statistics.fmean(epsilons),
        "spectrum": (spectrum / spectrum[0]).tolist(),
    }


def _measured(
    outputs: Outputs, inputs: Tensor, number: int, settings: SpectrumSettings
) -> FunctionRank:
    with torch.no_grad():
        values = outputs(inputs)[:, number]
    mean, deviation = values.mean(), values.std()
    if not float(deviation) > 0:
        raise ExperimentError(
            f"spectrum_row: output {number} is {float(mean):g} for all {len(inputs)} inputs; "
            f"there is nothing to split."
        )
    return separation_rank(
        lambda tokens: (outputs(tokens)[:, number] - mean) / deviation,
        Partition.left_right(inputs.shape[1]),
        inputs=inputs,
        epsilon=settings.epsilon,
        options=replace(FunctionOptions(), batch_size=512),
    )
