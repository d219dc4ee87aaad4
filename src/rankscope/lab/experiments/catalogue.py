"""Every experiment and topic by name, with what a list shows of it; the rest is loaded by name.

Nothing here imports torch, so that lists are printed at once and a run loads only what it needs.
A test compares every line with the object that it names.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from rankscope.errors import ExperimentError, RequestError

if TYPE_CHECKING:
    from rankscope.lab.constructions.topic import Topic
    from rankscope.lab.experiments.experiment import Experiment


@dataclass(frozen=True)
class ListedExperiment:
    """An experiment as the list shows it.

    Args:
        name: as the command line says it; the object is called the same, in capitals.
        module: of `rankscope.lab.experiments` that holds it.
        title: what it asks, in one line.
        num_rows: how many rows a complete run computes.
        has_quick: whether there is a quick version.
        needs: what has to be in the data folder; empty if nothing.
    """

    name: str
    module: str
    title: str
    num_rows: int
    has_quick: bool = True
    needs: str = ""


@dataclass(frozen=True)
class ListedTopic:
    """What a list shows of a topic: its name, the module of `topics` that holds it, its title."""

    name: str
    module: str
    title: str


_EXPERIMENTS = (
    ListedExperiment(
        "cifar10-compression",
        "image_compression",
        "ResNet-32 on CIFAR-10: accuracy in percent at counted shares of 460,800 weights",
        32,
        needs="CIFAR-10 (binary) and the published ResNet-32",
    ),
    ListedExperiment(
        "cifar10-compression-longer",
        "image_compression",
        "The same at 10 %, an hour of one core for each format: accuracy in percent",
        8,
        needs="CIFAR-10 (binary) and the published ResNet-32",
    ),
    ListedExperiment(
        "cifar10-compression-planned",
        "image_compression",
        "Formats and ranks chosen together, two hours of one core: accuracy in percent",
        4,
        needs="CIFAR-10 (binary) and the published ResNet-32",
    ),
    ListedExperiment(
        "digits-compression",
        "image_compression",
        "The embedded digits network: accuracy in percent at counted shares of 13,824 weights",
        26,
    ),
    ListedExperiment(
        "stories260k-compression",
        "decoder_compression",
        "stories260k: perplexity at shares of the 226,560 parameters in blocks' matrices",
        23,
        has_quick=False,
        needs="stories260k (llama2.c) and Multi30k",
    ),
    ListedExperiment(
        "smollm2-compression",
        "decoder_compression",
        "SmolLM2-135M: perplexity at shares of the 106,168,320 parameters in blocks' matrices",
        20,
        has_quick=False,
        needs="SmolLM2-135M-Instruct, wikitext-2, tinyshakespeare, and the extra [hf]",
    ),
    ListedExperiment(
        "sequential-vs-end-to-end",
        "sequential_vs_end_to_end",
        "ResNet-32 on CIFAR-10 at 10 %: accuracy in percent against samples processed",
        56,
        needs="CIFAR-10 (binary) and the published ResNet-32",
    ),
    ListedExperiment(
        "sequential-vs-end-to-end-digits",
        "sequential_vs_end_to_end",
        "The embedded digits network at 10 %: accuracy in percent against samples processed",
        16,
    ),
    ListedExperiment(
        "reshaping",
        "reshaping",
        "Relative error of planted kernels at equal parameters, plain and reshaped forms",
        24,
    ),
    ListedExperiment(
        "minilm-compression",
        "language_compression",
        "MiniLM: Spearman correlation x 100 on STS-B at shares of 22,713,216 parameters",
        11,
        has_quick=False,
        needs="all-MiniLM-L6-v2, STS-B, and the extra [text]",
    ),
    ListedExperiment(
        "pronunciation-compression",
        "language_compression",
        "g2p_en: words of CMUdict spoken rightly, in percent, at shares of 834,890 parameters",
        10,
        has_quick=False,
        needs="g2p_en and CMUdict",
    ),
    ListedExperiment(
        "mixer-budget",
        "mixer_budget",
        "Mixers, attention and layers of degree d at equal parameters: accuracy in percent",
        62,
    ),
    ListedExperiment(
        "mixer-budget-mnist",
        "mixer_budget",
        "The same on MNIST, averaged to 8 x 8 pixels: accuracy in percent",
        62,
        needs="MNIST (idx)",
    ),
    ListedExperiment(
        "orthogonality",
        "orthogonality",
        "Norms after one convolution, and of gradients after many, over those before; 1 is kept",
        13,
    ),
    ListedExperiment(
        "lipschitz-digits",
        "lipschitz",
        "Digits of 8 x 8 pixels: accuracy in percent, clean, attacked and certified (l2)",
        16,
    ),
    ListedExperiment(
        "lipschitz-cifar10-longer",
        "lipschitz",
        "The same for hours: accuracy in percent, clean, attacked and certified",
        3,
        needs="CIFAR-10 (binary)",
    ),
    ListedExperiment(
        "lipschitz-cifar10",
        "lipschitz",
        "CIFAR-10: accuracy in percent, clean, attacked and certified (l2, pixels in 0..1)",
        25,
        needs="CIFAR-10 (binary)",
    ),
    ListedExperiment(
        "bound-vs-test-error",
        "generalization_bounds",
        "Bounds without constants beside the test error, after the last epoch",
        24,
        needs="FashionMNIST/raw and cifar-10-batches-bin",
    ),
    ListedExperiment(
        "cp-layers-accuracy",
        "cp_networks",
        "CP layers against plain ones at equal parameters: accuracy in percent",
        36,
        needs="FashionMNIST/raw and cifar-10-batches-bin",
    ),
    ListedExperiment(
        "label-noise",
        "label_noise",
        "Trained on partly random labels: accuracy on true ones, in percent",
        116,
        needs="FashionMNIST/raw",
    ),
    ListedExperiment(
        "label-noise-cifar10",
        "label_noise",
        "ResNet-20 on partly random labels of CIFAR-10: accuracy on true ones, in percent",
        30,
        needs="cifar-10-batches-bin",
    ),
    ListedExperiment(
        "non-vacuous-bound",
        "generalization_bounds",
        "A bound on the error that holds with probability 0.95, beside the test error",
        27,
        needs="MNIST/raw, FashionMNIST/raw and cifar-10-batches-bin",
    ),
    ListedExperiment(
        "cp-properties",
        "cp_networks",
        "Untrained networks with CP layers: ranks that keep a margin of 1",
        3,
        needs="cifar-10-batches-bin",
    ),
    ListedExperiment(
        "sawtooth-rivals",
        "teaching_regions",
        "How near do shallow networks come to Telgarsky's sawtooth?",
        6,
    ),
    ListedExperiment(
        "trained-regions",
        "teaching_regions",
        "How do the affine regions of a network change while it learns a circle?",
        3,
    ),
    ListedExperiment(
        "tt-cp-rank", "tt_cp_rank", "CP rank of random trains with equal cores (n = 2, bond 3)", 27
    ),
    ListedExperiment(
        "tt-mnist",
        "classifiers",
        "Tensor-train classifiers on MNIST: accuracy in percent",
        11,
        needs="MNIST/raw with its four idx files",
    ),
    ListedExperiment(
        "tt-digits",
        "classifiers",
        "Tensor-train classifiers on 8 x 8 digits: accuracy in percent",
        12,
    ),
    ListedExperiment(
        "shallow-vs-deep",
        "classifiers",
        "Sum of products, train and tree at equal parameters: accuracy in percent",
        49,
        needs="MNIST/raw with its four idx files",
    ),
    ListedExperiment(
        "degree-budget",
        "degree_budget",
        "Which degree of a layer learns best within a budget? Test errors",
        226,
        needs="MNIST (idx)",
    ),
    ListedExperiment(
        "depth-width",
        "depth_width",
        "Characters of Shakespeare: test loss (nats) of language models by depth and size",
        51,
        needs="tinyshakespeare",
    ),
    ListedExperiment(
        "embedding-bottleneck",
        "bottlenecks",
        "Width and depth beyond the rank of the embedding: test loss (nats) and exact rank",
        49,
        needs="tinyshakespeare",
    ),
    ListedExperiment(
        "head-bottleneck",
        "bottlenecks",
        "Heads and their size at equal parameters: test loss (nats) and exact separation rank",
        43,
        needs="tinyshakespeare",
    ),
    ListedExperiment(
        "attention-forms",
        "attention_forms",
        "Forms of attention: test loss (nats), BLEU (percent), bits per intensity",
        39,
        needs="tinyshakespeare, multi30k, cifar-10-batches-bin",
    ),
    ListedExperiment(
        "rank-predicts-loss",
        "rank_predicts_loss",
        "Trained language models: entanglement, epsilon rank and test loss",
        48,
        needs="tinyshakespeare, stories260k, minilm, stsb_en",
    ),
    ListedExperiment(
        "spectrum-predicts-loss",
        "spectrum_predicts_loss",
        "Matrices cut to half of their parameters, one at a time: spectra and divergence",
        2,
        has_quick=False,
        needs="stories260k (llama2.c), Multi30k, SmolLM2-135M-Instruct, wikitext-2, and [hf]",
    ),
    ListedExperiment(
        "graph-sparsification",
        "graph_sparsification",
        "Graph networks on a share of the edges: accuracy in percent by removal rule",
        165,
    ),
    ListedExperiment(
        "feature-order",
        "feature_order",
        "Features as given, shuffled and reordered by correlations: accuracy in percent",
        80,
        needs="MNIST/raw with its four idx files",
    ),
)
EXPERIMENTS = {listed.name: listed for listed in _EXPERIMENTS}

TOPIC_GROUPS = {
    "Functions that networks represent": (
        ListedTopic("piecewise-linear", "functions", "Piecewise-linear functions are networks"),
        ListedTopic("approximation", "functions", "Universal approximation in one dimension"),
        ListedTopic(
            "approximation-in-space", "functions", "Universal approximation in several dimensions"
        ),
        ListedTopic("deep-and-narrow", "functions", "Width d + 1 is enough when depth is free"),
        ListedTopic("one-layer-obstruction", "functions", "What one hidden layer cannot be"),
        ListedTopic(
            "polynomial-activation", "functions", "Why the activation must not be a polynomial"
        ),
    ),
    "Affine regions and depth": (
        ListedTopic("sawtooth", "functions", "What depth can do and width cannot"),
        ListedTopic("affine-regions", "functions", "Affine regions, counted exactly"),
        ListedTopic("region-bounds", "functions", "How many regions there can be"),
        ListedTopic("montufar", "functions", "Folding: a network that attains the lower bound"),
        ListedTopic("trained-regions", "functions", "Regions of a trained network"),
    ),
    "Layers": (
        ListedTopic("activations", "learning", "Activation functions"),
        ListedTopic("dead-units", "learning", "Dead units"),
        ListedTopic("two-five-one", "learning", "The network with sizes 2, 5, 1"),
        ListedTopic("weight-sharing", "learning", "Weight sharing in three forms"),
        ListedTopic("convolution-matrix", "learning", "A convolution as a matrix"),
    ),
    "Learning": (
        ListedTopic("distances", "learning", "Distances between distributions"),
        ListedTopic("gradient-descent", "learning", "Gradient descent and its theorem"),
        ListedTopic("momentum", "learning", "Momentum, in both parametrizations"),
        ListedTopic("adam", "learning", "Adam"),
    ),
    "Regularizers and skip connections": (
        ListedTopic(
            "regularizers",
            "learning",
            "Regularizers: L1, L2, weight decay, dropout, early stopping",
        ),
        ListedTopic("data-augmentation", "learning", "Data augmentation"),
        ListedTopic("skip-connections", "learning", "Skip connections"),
    ),
    "Normalization, softmax, tensors": (
        ListedTopic("batch-normalization", "blocks", "Batch normalization"),
        ListedTopic("layer-normalization", "blocks", "Layer normalization"),
        ListedTopic("softmax", "blocks", "Softmax and its four properties"),
        ListedTopic("tensor-product", "blocks", "Tensor product, pure tensors and rank"),
    ),
    "Attention": (
        ListedTopic(
            "attention-lookup", "blocks", "Attention as a lookup table that can be differentiated"
        ),
        ListedTopic("attention-example", "blocks", "A worked example of attention"),
        ListedTopic("recurrent-attention", "blocks", "Attention inside a recurrent network"),
        ListedTopic(
            "multi-head-attention", "blocks", "Multi-head attention and its quadratic cost"
        ),
    ),
}
TOPICS = {listed.name: listed for group in TOPIC_GROUPS.values() for listed in group}


def find_experiment(name: str) -> "Experiment":
    """Load an experiment by name.

    Raises:
        ExperimentError: if there is none of that name.
    """
    if name not in EXPERIMENTS:
        near = get_close_matches(name, EXPERIMENTS, n=3)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise ExperimentError(
            f"There is no experiment {name!r}.{hint} `rankscope experiment list` lists the names."
        )
    module = import_module(f"rankscope.lab.experiments.{EXPERIMENTS[name].module}")
    experiment: Experiment = getattr(module, name.upper().replace("-", "_"))
    return experiment


def find_topic(name: str) -> "Topic":
    """Load a topic by name.

    Raises:
        RequestError: if there is none of that name.
    """
    if name not in TOPICS:
        raise RequestError(f"There is no topic {name!r}; choose one of {', '.join(TOPICS)}.")
    module = import_module(f"rankscope.lab.topics.{TOPICS[name].module}")
    topics: dict[str, Topic] = module.TOPICS
    return topics[name]
