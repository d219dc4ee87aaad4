"""All experiments by name."""

from rankscope.errors import ExperimentError
from rankscope.experiments.cifar10_compression import CIFAR10_COMPRESSION, DIGITS_COMPRESSION
from rankscope.experiments.experiment import Experiment
from rankscope.experiments.language_compression import (
    MINILM_COMPRESSION,
    PRONUNCIATION_COMPRESSION,
)
from rankscope.experiments.lipschitz_cifar10 import LIPSCHITZ_CIFAR10
from rankscope.experiments.lipschitz_digits import LIPSCHITZ_DIGITS
from rankscope.experiments.orthogonality import ORTHOGONALITY
from rankscope.experiments.reshaping import RESHAPING
from rankscope.experiments.sequential_vs_end_to_end import (
    SEQUENTIAL_VS_END_TO_END,
    SEQUENTIAL_VS_END_TO_END_DIGITS,
)
from rankscope.experiments.teaching_regions import TRAINED_REGIONS
from rankscope.experiments.teaching_sawtooth import SAWTOOTH_RIVALS

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        CIFAR10_COMPRESSION,
        DIGITS_COMPRESSION,
        SEQUENTIAL_VS_END_TO_END,
        SEQUENTIAL_VS_END_TO_END_DIGITS,
        RESHAPING,
        MINILM_COMPRESSION,
        PRONUNCIATION_COMPRESSION,
        ORTHOGONALITY,
        LIPSCHITZ_DIGITS,
        LIPSCHITZ_CIFAR10,
        SAWTOOTH_RIVALS,
        TRAINED_REGIONS,
    )
}


def find_experiment(name: str) -> Experiment:
    """An experiment by name.

    Raises:
        ExperimentError: if there is none of that name.
    """
    if name not in EXPERIMENTS:
        raise ExperimentError(
            f"There is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}."
        )
    return EXPERIMENTS[name]
