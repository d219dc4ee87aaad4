"""Topics: activations, dead units, the 2-5-1 network, weight sharing."""

import numpy
import torch
from torch import nn

from rankscope.constructions.activations import ACTIVATIONS, gelu_minimum, measure_activation
from rankscope.constructions.pictures_activations import draw_activations, draw_dead_units
from rankscope.constructions.pictures_sharing import draw_shared_matrices
from rankscope.constructions.pictures_two_five_one import draw_realizations, draw_two_five_one
from rankscope.constructions.structured_matrix import as_matrix, shared_convolution
from rankscope.constructions.topic import Shown, Topic, Value
from rankscope.constructions.two_five_one import two_five_one
from rankscope.constructions.weight_sharing import shared_graph_layer, shared_recurrence
from rankscope.diagrams.drawing import draw
from rankscope.diagrams.einsum import from_einsum
from rankscope.reading import from_module
from rankscope.experiments.teaching_dead_units import train_until_dead
from rankscope.experiments.topics.lecture import in_lecture

# Neighbours are added up, then the same weights act at every node.
GRAPH_LAYER = from_einsum("ij,jb,ab->ia", names=("A", "X", "W"), parameters=(2,))
RATES = (0.1, 3.0, 30.0)


def _activations() -> Shown:
    numbers: dict[str, Value] = {}
    for activation in ACTIVATIONS:
        found, name = measure_activation(activation), activation.name
        numbers[f"{name}: homogeneous"] = found.homogeneity_error < 1e-12
        numbers[f"{name}: odd"] = found.oddness_error < 1e-12
        numbers[f"{name}: monotone"] = activation.is_monotone
        numbers[f"{name}: Lipschitz constant"] = activation.lipschitz_constant
    least = gelu_minimum()
    numbers["GELU is least at"] = least.low
    numbers["GELU at its least"] = least.value
    return Shown(numbers, pictures={"curves": draw_activations})


def _dead_units() -> Shown:
    runs = {rate: train_until_dead(rate=rate) for rate in RATES}
    first = runs[RATES[0]].before
    return Shown(
        {"hidden units": first.num_units, "examples": first.num_examples},
        measured={
            "dead before training": first.num_dead,
            **{
                f"dead after training at rate {rate:g}": run.after.num_dead
                for rate, run in runs.items()
            },
            **{f"accuracy at rate {rate:g}": run.accuracy for rate, run in runs.items()},
        },
        pictures={"activity": lambda path: draw_dead_units(runs[RATES[1]].after, path)},
    )


def _two_five_one() -> Shown:
    networks = [two_five_one(seed) for seed in range(6)]
    biased = [two_five_one(seed, bias_spread=0.5) for seed in range(6)]
    return Shown(
        {
            "weights and biases": networks[0].num_parameters,
            "regions without biases, at most": networks[0].most_regions,
            "regions with biases, at most": biased[0].most_regions,
            "regions of six networks without biases": [
                network.regions.num_patterns for network in networks
            ],
            "regions of six networks with biases": [
                network.regions.num_patterns for network in biased
            ],
        },
        pictures={
            "graph": lambda path: draw_two_five_one(networks[0], path),
            "functions": lambda path: draw_realizations(networks[:4], path),
            "functions-with-biases": lambda path: draw_realizations(biased[:4], path),
            "diagram": lambda path: draw(from_module(networks[0].network, (1, 2)), path),
        },
    )


def _weight_sharing() -> Shown:
    ring = numpy.roll(numpy.eye(6), 1, axis=1)
    matrices = {
        "Convolution": shared_convolution(nn.Conv1d(1, 1, 3, bias=False), (1, 12)),
        "Recurrence": shared_recurrence(nn.RNN(1, 2), 5),
        "Graph layer": shared_graph_layer(ring + ring.T, numpy.ones((2, 2))),
    }
    numbers: dict[str, Value] = {}
    for name, matrix in matrices.items():
        numbers[f"{name}: shape"] = list(matrix.shape)
        numbers[f"{name}: entries that are not always zero"] = matrix.num_entries
        numbers[f"{name}: different weights"] = matrix.num_weights
    return Shown(
        numbers,
        pictures={
            "matrices": lambda path: draw_shared_matrices(matrices, path),
            "graph-layer": lambda path: draw(GRAPH_LAYER, path),
        },
    )


def _convolution_matrix() -> Shown:
    layer = nn.Conv2d(1, 2, 3, stride=2, padding=1, bias=False).double()
    inputs = torch.from_numpy(numpy.random.default_rng(0).normal(size=(1, 6, 6)))
    matrix = as_matrix(layer, (1, 6, 6))
    with torch.no_grad():
        outputs = layer(inputs[None])[0].flatten()
    error = numpy.abs(matrix @ inputs.flatten().numpy() - outputs.numpy()).max()
    one = nn.Conv1d(1, 1, 3, bias=False).double()
    with torch.no_grad():
        one.weight.copy_(torch.tensor([[[1.0, 2.0, 3.0]]]))
    banded = {
        "stride 1": shared_convolution(one, (1, 8)),
        "two dimensions, stride 2": shared_convolution(layer, (1, 6, 6)),
    }
    return Shown(
        {
            "kernel [1, 2, 3]: first row": as_matrix(one, (1, 6)).toarray()[0].tolist(),
            "kernel [1, 2, 3]: last row": as_matrix(one, (1, 6)).toarray()[-1].tolist(),
            "Conv2d(1, 2, 3, stride=2, padding=1) on 6 x 6: shape": list(matrix.shape),
            "its entries": int(matrix.nnz),
            "its weights": layer.weight.numel(),
            "equal to the layer": bool(error < 1e-12),
        },
        pictures={
            "bands": lambda path: draw_shared_matrices(banded, path),
            "diagram": lambda path: draw(
                from_module(nn.Conv2d(2, 3, 3, bias=False), (1, 2, 6, 6)), path
            ),
        },
    )


LAYERS = (
    Topic(
        "activations",
        "Activation functions",
        "Without activations a network would be one affine map. ReLU is positively homogeneous, "
        "ReLU(αx) = α ReLU(x) for α > 0; the others are not. Tanh is odd and bounded, sigmoid "
        "bounded, ELU monotone with the least value -1 out of reach; GELU is not monotone.",
        in_lecture("section 1 and Remark 1.1"),
        _activations,
    ),
    Topic(
        "dead-units",
        "Dead units",
        "A ReLU unit that is at zero for all examples passes no gradient, so gradient descent "
        "cannot bring it back. Long steps kill many. The picture shows for how many examples each "
        "unit acts after training at rate 3.",
        in_lecture("Remark 1.1"),
        _dead_units,
    ),
    Topic(
        "two-five-one",
        "The network with sizes 2, 5, 1",
        "Two inputs, five hidden units, one output: 21 numbers. Without biases all breaks are "
        "lines through the origin and there are at most 10 regions; with biases at most 16.",
        in_lecture("Example 1.2"),
        _two_five_one,
    ),
    Topic(
        "weight-sharing",
        "Weight sharing in three forms",
        "A convolution, a recurrence that is unrolled and a graph layer are dense layers whose "
        "matrices repeat few weights in many places: along diagonals, in equal blocks, and as "
        "adjacency times weights (A ⊗ W). Equal colours are one weight.",
        in_lecture("section 1.1"),
        _weight_sharing,
    ),
    Topic(
        "convolution-matrix",
        "A convolution as a matrix",
        "A convolution is a dense layer with a sparse matrix, in which the kernel stands again "
        "and again; stride moves it by more than one place, padding cuts it off at the ends and "
        "dilation spreads it.",
        in_lecture("section 1.1"),
        _convolution_matrix,
    ),
)
