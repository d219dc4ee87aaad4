"""All experiments by name."""

from rankscope.errors import ExperimentError
from rankscope.experiments.attention_forms import ATTENTION_FORMS
from rankscope.experiments.bound_vs_test_error import BOUND_VS_TEST_ERROR
from rankscope.experiments.cifar10_compression import CIFAR10_COMPRESSION, DIGITS_COMPRESSION
from rankscope.experiments.cp_layers_accuracy import CP_LAYERS_ACCURACY
from rankscope.experiments.cp_properties import CP_PROPERTIES
from rankscope.experiments.degree_budget import DEGREE_BUDGET
from rankscope.experiments.depth_width import DEPTH_WIDTH, DEPTH_WIDTH_LONGER
from rankscope.experiments.embedding_bottleneck import EMBEDDING_BOTTLENECK
from rankscope.experiments.experiment import Experiment
from rankscope.experiments.head_bottleneck import HEAD_BOTTLENECK
from rankscope.experiments.label_noise import LABEL_NOISE
from rankscope.experiments.language_compression import (
    MINILM_COMPRESSION,
    PRONUNCIATION_COMPRESSION,
)
from rankscope.experiments.lipschitz_cifar10 import LIPSCHITZ_CIFAR10
from rankscope.experiments.lipschitz_digits import LIPSCHITZ_DIGITS
from rankscope.experiments.non_vacuous_bound import NON_VACUOUS_BOUND
from rankscope.experiments.orthogonality import ORTHOGONALITY
from rankscope.experiments.rank_predicts_loss import RANK_PREDICTS_LOSS
from rankscope.experiments.reshaping import RESHAPING
from rankscope.experiments.sequential_vs_end_to_end import (
    SEQUENTIAL_VS_END_TO_END,
    SEQUENTIAL_VS_END_TO_END_DIGITS,
)
from rankscope.experiments.shallow_vs_deep import SHALLOW_VS_DEEP
from rankscope.experiments.teaching_regions import TRAINED_REGIONS
from rankscope.experiments.teaching_sawtooth import SAWTOOTH_RIVALS
from rankscope.experiments.tt_cp_rank import TT_CP_RANK
from rankscope.experiments.tt_mnist import TT_DIGITS, TT_MNIST

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
        BOUND_VS_TEST_ERROR,
        CP_LAYERS_ACCURACY,
        LABEL_NOISE,
        NON_VACUOUS_BOUND,
        CP_PROPERTIES,
        SAWTOOTH_RIVALS,
        TRAINED_REGIONS,
        TT_CP_RANK,
        TT_MNIST,
        TT_DIGITS,
        SHALLOW_VS_DEEP,
        DEGREE_BUDGET,
        DEPTH_WIDTH,
        DEPTH_WIDTH_LONGER,
        EMBEDDING_BOTTLENECK,
        HEAD_BOTTLENECK,
        ATTENTION_FORMS,
        RANK_PREDICTS_LOSS,
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
