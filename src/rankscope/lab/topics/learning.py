"""Topics: layers, losses and descent, regularizers and skip connections."""

from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn

from rankscope.diagrams.einsum import from_einsum
from rankscope.drawing.drawing import draw
from rankscope.lab.constructions.blocks import branches, jacobian_range
from rankscope.lab.constructions.dense import ACTIVATIONS, Reals, gelu_minimum, measure_activation
from rankscope.lab.constructions.explicit_networks import two_five_one
from rankscope.lab.constructions.learning import (
    CONVERGENCE,
    Adam,
    AveragedMomentum,
    ConvexProblem,
    GradientDescent,
    HeavyBall,
    compare_distributions,
    follow,
    gradient_descent,
    least_squares,
    logistic_regression,
)
from rankscope.lab.constructions.pictures import (
    Axes,
    draw_activations,
    draw_binary_distances,
    draw_curves,
    draw_dead_units,
    draw_descent,
    draw_shared_matrices,
    draw_ways,
)
from rankscope.lab.constructions.pictures_functions import draw_realizations, draw_two_five_one
from rankscope.lab.constructions.topic import (
    Topic,
    TopicResult,
    Value,
    lecture_theorem,
    recalled_theorem,
)
from rankscope.lab.constructions.weight_sharing import (
    as_matrix,
    shared_convolution,
    shared_graph_layer,
    shared_recurrence,
)
from rankscope.lab.experiments.teaching_training import (
    NOISE,
    REGULARIZERS,
    add_spread_copies,
    train,
    train_deep,
    train_moved,
    train_until_dead,
)
from rankscope.reading.network import from_module

# Topics: activations, dead units, the 2-5-1 network, weight sharing.


# Neighbours are added up, then the same weights act at every node.
GRAPH_LAYER = from_einsum("ij,jb,ab->ia", names=("A", "X", "W"), parameters=(2,))
RATES = (0.1, 3.0, 30.0)


def _activations() -> TopicResult:
    numbers: dict[str, Value] = {}
    for activation in ACTIVATIONS:
        result, name = measure_activation(activation), activation.name
        numbers[f"{name}: homogeneous"] = result.homogeneity_error < 1e-12
        numbers[f"{name}: odd"] = result.oddness_error < 1e-12
        numbers[f"{name}: monotone"] = activation.is_monotone
        numbers[f"{name}: Lipschitz constant"] = activation.lipschitz_constant
    least = gelu_minimum()
    numbers["GELU is least at"] = least.low
    numbers["GELU at its least"] = least.value
    return TopicResult(numbers, pictures={"curves": draw_activations})


def _dead_units() -> TopicResult:
    runs = {rate: train_until_dead(rate=rate) for rate in RATES}
    first = runs[RATES[0]].before
    return TopicResult(
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


def _two_five_one() -> TopicResult:
    networks = [two_five_one(seed) for seed in range(6)]
    biased = [two_five_one(seed, bias_spread=0.5) for seed in range(6)]
    return TopicResult(
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


def _weight_sharing() -> TopicResult:
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
    return TopicResult(
        numbers,
        pictures={
            "matrices": lambda path: draw_shared_matrices(matrices, path),
            "graph-layer": lambda path: draw(GRAPH_LAYER, path),
        },
    )


def _convolution_matrix() -> TopicResult:
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
    return TopicResult(
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
        lecture_theorem("section 1 and Remark 1.1"),
        _activations,
    ),
    Topic(
        "dead-units",
        "Dead units",
        "A ReLU unit that is at zero for all examples passes no gradient, so gradient descent "
        "cannot bring it back. Long steps kill many. The picture shows for how many examples each "
        "unit acts after training at rate 3.",
        lecture_theorem("Remark 1.1"),
        _dead_units,
    ),
    Topic(
        "two-five-one",
        "The network with sizes 2, 5, 1",
        "Two inputs, five hidden units, one output: 21 numbers. Without biases all breaks are "
        "lines through the origin and there are at most 10 regions; with biases at most 16.",
        lecture_theorem("Example 1.2"),
        _two_five_one,
    ),
    Topic(
        "weight-sharing",
        "Weight sharing in three forms",
        "A convolution, a recurrence that is unrolled and a graph layer are dense layers whose "
        "matrices repeat few weights in many places: along diagonals, in equal blocks, and as "
        "adjacency times weights (A ⊗ W). Equal colours are one weight.",
        lecture_theorem("section 1.1"),
        _weight_sharing,
    ),
    Topic(
        "convolution-matrix",
        "A convolution as a matrix",
        "A convolution is a dense layer with a sparse matrix, in which the kernel stands again "
        "and again; stride moves it by more than one place, padding cuts it off at the ends and "
        "dilation spreads it.",
        lecture_theorem("section 1.1"),
        _convolution_matrix,
    ),
)


# Topics: distances between distributions, and how to walk downhill.


MakeOptimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


def _valley() -> ConvexProblem:
    """Ten times as steep in one direction as in the other."""
    return least_squares(numpy.diag([1.0, 10.0**0.5]), numpy.zeros(2))


def _torch_points(problem: ConvexProblem, start: Reals, make: MakeOptimizer, steps: int) -> Reals:
    """The way of a torch optimizer with the same gradients."""
    theta = torch.tensor(start, requires_grad=True)
    optimizer = make([theta])
    results = [start]
    for _ in range(steps):
        theta.grad = torch.from_numpy(problem.gradient(theta.detach().numpy().copy()))
        optimizer.step()
        results.append(theta.detach().numpy().copy())
    return numpy.stack(results)


def _distances() -> TopicResult:
    first, second = numpy.array([0.5, 0.3, 0.2]), numpy.array([0.25, 0.25, 0.5])
    result = compare_distributions(first, second)
    return TopicResult(
        {
            "P": first.tolist(),
            "Q": second.tolist(),
            "L1": result.l1,
            "L2": result.l2,
            "L∞": result.l_infinity,
            "total variation, half of L1": result.total_variation.value,
            "an event that has it": [place + 1 for place in result.total_variation.event],
            "KL(P ‖ Q)": result.kullback_leibler,
            "KL(Q ‖ P)": result.kullback_leibler_reversed,
            "both are at least (Pinsker)": result.pinsker,
            "entropy of P": result.entropy,
            "cross-entropy, entropy plus KL": result.cross_entropy,
        },
        pictures={"binary": draw_binary_distances},
    )


def _descent() -> TopicResult:
    draw = numpy.random.default_rng(0)
    features = draw.normal(size=(60, 4))
    problem = logistic_regression(
        features, (features @ numpy.ones(4) + draw.normal(size=60) > 0).astype(float), ridge=0.01
    )
    start = numpy.full(4, -2.0)
    runs = {
        f"η = {share:g}/L": gradient_descent(
            problem, start, rate=share / problem.smoothness, num_steps=200
        )
        for share in (1.0, 0.2)
    }
    valley = _valley()
    wild = gradient_descent(valley, numpy.ones(2), rate=2.1 / valley.smoothness, num_steps=50)
    fast = runs["η = 1/L"]
    assert fast.bounds is not None, "the rate is 1/L"
    return TopicResult(
        {
            "problem": "logistic regression, 60 points, 4 parameters",
            "gap after 10 steps at 1/L": float(fast.gaps[10]),
            "its bound": float(fast.bounds[10]),
            "gap after 40 steps at 1/L": float(fast.gaps[40]),
            "its bound, too": float(fast.bounds[40]),
            "the bound is never crossed": bool((fast.gaps[1:] <= fast.bounds[1:]).all()),
            "at 2.1/L a quadratic grows by a factor of": float(wild.gaps[-1] / wild.gaps[0]),
        },
        pictures={"bound": lambda path: draw_descent(runs, path)},
    )


def _momentum() -> TopicResult:
    problem, start = _valley(), numpy.array([3.0, 1.0])
    plain, ball = GradientDescent(0.05), HeavyBall(0.05, 0.7)
    averaged = ball.averaged()
    ways = {
        "gradient descent": follow(plain, problem.gradient, start, num_steps=40),
        "momentum 0.7": follow(ball, problem.gradient, start, num_steps=40),
    }
    other = follow(averaged, problem.gradient, start, num_steps=40)
    theirs = _torch_points(
        problem, start, lambda thetas: torch.optim.SGD(thetas, lr=0.05, momentum=0.7), 40
    )
    return TopicResult(
        {
            "rate γ, momentum m": [ball.rate, ball.momentum],
            "rate η = γ/(1-m), decay β = m": [averaged.rate, averaged.decay],
            "both parametrizations go the same way": _is_same(ways["momentum 0.7"], other),
            "equal to torch.optim.SGD in each of 40 steps": _is_same(ways["momentum 0.7"], theirs),
            "cost after 40 steps, without": problem.value(ways["gradient descent"][-1]),
            "cost after 40 steps, with": problem.value(ways["momentum 0.7"][-1]),
        },
        pictures={"ways": lambda path: draw_ways(problem, ways, path)},
    )


def _adam() -> TopicResult:
    problem, start = _valley(), numpy.array([3.0, 1.0])
    rule = Adam(rate=0.2)
    way = follow(rule, problem.gradient, start, num_steps=60)
    theirs = _torch_points(problem, start, lambda thetas: torch.optim.Adam(thetas, lr=0.2), 60)
    ways = {
        "gradient descent": follow(GradientDescent(0.05), problem.gradient, start, num_steps=60),
        "Adam": way,
        "momentum 0.9": follow(AveragedMomentum(0.05, 0.9), problem.gradient, start, num_steps=60),
    }
    return TopicResult(
        {
            "first step, each coordinate": (way[1] - start).tolist(),
            "equal to torch.optim.Adam in each of 60 steps": _is_same(way, theirs),
            "cost after 60 steps": problem.value(way[-1]),
        },
        pictures={"ways": lambda path: draw_ways(problem, ways, path)},
    )


def _is_same(ours: Reals, theirs: Reals) -> bool:
    return bool(numpy.abs(ours - theirs).max() <= 1e-12)


LEARNING = (
    Topic(
        "distances",
        "Distances between distributions",
        "Lp distances and total variation are metrics, and total variation is half of L1: the set "
        "on which P is larger attains it. The Kullback-Leibler divergence is not symmetric, zero "
        "only for equal distributions, and infinite if Q misses what P has. Cross-entropy is the "
        "divergence plus the entropy of P, so for fixed P both are least at the same Q.",
        lecture_theorem("section 1.4", "finitely many outcomes"),
        _distances,
    ),
    Topic(
        "gradient-descent",
        "Gradient descent and its theorem",
        "For a convex cost whose gradient is Lipschitz with constant L, and a rate η of at most "
        "1/L, the gap to the minimum after t steps is at most ‖θ0 - θ*‖² / (2ηt). Above 2/L, "
        "gradient descent on a quadratic diverges.",
        CONVERGENCE,
        _descent,
    ),
    Topic(
        "momentum",
        "Momentum, in both parametrizations",
        "A velocity remembers earlier gradients: v ← m v - γ ∇C, θ ← θ + v. Or an average of "
        "gradients: v ← β v + (1-β) ∇C, θ ← θ - η v. With β = m and η = γ/(1-m) both walk the "
        "same way. The new velocity is added, not the old one that the lecture prints.",
        lecture_theorem("section 1.5"),
        _momentum,
    ),
    Topic(
        "adam",
        "Adam",
        "Averages of gradients and of their squares, both corrected for starting at zero; the "
        "step is their quotient, so its first size is the rate in every coordinate, however steep "
        "the cost is there.",
        recalled_theorem("Kingma & Ba (2015)", "Algorithm 1", "1412.6980"),
        _adam,
    ),
)


# Topics that need a small training: regularizers and skip connections.


SEEDS, DEPTH, FIRST_LOOK = 3, 24, 6


class Residual(nn.Module):
    """A branch, added to its input; for its diagram."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.outer = nn.Linear(16, 16)

    # To read the module, torch.fx passes a stand-in that is no tensor; hence Any.
    def forward(self, inputs: Any) -> Any:
        """The sum."""
        return inputs + self.outer(self.inner(inputs).relu())


def _regularizers() -> TopicResult:
    runs = {each.name: [train(each, seed=seed) for seed in range(SEEDS)] for each in REGULARIZERS}
    # The first steps are far off; early stopping walks as nothing does, weight decay as L2.
    curves = {
        name: (
            result[0].steps[FIRST_LOOK:],
            numpy.mean([run.test_losses[FIRST_LOOK:] for run in result], axis=0),
        )
        for name, result in runs.items()
        if name not in {"weight decay", "early stopping"}
    }
    words = Axes("Error on other points, mean of 3 seeds", "steps", "mean squared error")
    tests = {name: [run.test_losses[run.kept] for run in result] for name, result in runs.items()}
    gap = numpy.abs(numpy.subtract(tests["L2"], tests["weight decay"])).max()
    return TopicResult(
        {
            "seeds": SEEDS,
            "variance of the noise": NOISE**2,
            "weight decay and L2 give the same": bool(gap < 1e-9),
        },
        measured={
            **{
                f"{name}: error on the training points": float(
                    numpy.mean([run.train_losses[run.kept] for run in result])
                )
                for name, result in runs.items()
            },
            **{
                f"{name}: error on other points": float(numpy.mean(errors))
                for name, errors in tests.items()
            },
            "L1: share of weights that are zero": float(
                numpy.mean([run.zeros for run in runs["L1"]])
            ),
            "early stopping: steps": [float(run.steps[run.kept]) for run in runs["early stopping"]],
        },
        pictures={"errors": lambda path: draw_curves(curves, words, path)},
    )


def _augmentation() -> TopicResult:
    drawn = torch.Generator().manual_seed(0)
    inputs = torch.randn(30, 5, generator=drawn, dtype=torch.float64)
    goals = inputs.sum(dim=1) + torch.randn(30, generator=drawn, dtype=torch.float64)
    copies, repeated = add_spread_copies(inputs, goals, NOISE)
    augmented = torch.linalg.lstsq(copies, repeated[:, None]).solution[:, 0]
    gram = inputs.T @ inputs + len(inputs) * NOISE**2 * torch.eye(5, dtype=torch.float64)
    ridge = torch.linalg.solve(gram, inputs.T @ goals)
    runs = {
        farthest: [train_moved(farthest=farthest, seed=seed) for seed in range(SEEDS)]
        for farthest in (0, 2, 4)
    }
    means = {
        farthest: numpy.mean([run.accuracies for run in result], axis=0)
        for farthest, result in runs.items()
    }
    moves = runs[0][0].moves
    curves = {
        f"moved by up to {farthest}" if farthest else "not moved": (moves, heights)
        for farthest, heights in means.items()
    }
    words = Axes("Accuracy on new patterns, mean of 3 seeds", "test patterns moved by", "accuracy")
    here = moves.index(0)
    return TopicResult(
        {
            "examples, copies": [len(inputs), len(copies)],
            "least squares on the copies is ridge regression": bool(
                (augmented - ridge).abs().max() < 1e-12
            ),
            "length of its weights over that without copies": float(
                augmented.norm() / torch.linalg.lstsq(inputs, goals[:, None]).solution.norm()
            ),
        },
        measured={
            **{
                f"moved by up to {farthest}: accuracy where they stood": float(heights[here])
                for farthest, heights in means.items()
            },
            **{
                f"moved by up to {farthest}: accuracy {abs(moves[0])} places off": float(
                    (heights[0] + heights[-1]) / 2
                )
                for farthest, heights in means.items()
            },
        },
        pictures={"moved": lambda path: draw_curves(curves, words, path, has_points=True)},
    )


def _skips() -> TopicResult:
    runs = {skips: train_deep(depth=DEPTH, with_skips=skips) for skips in (False, True)}
    names = {False: "without skips", True: "with skips"}
    places = list(range(1, DEPTH + 1))
    gradients = {names[skips]: (places, run.first_gradients) for skips, run in runs.items()}
    losses = {
        names[skips]: (list(range(len(run.losses))), run.losses) for skips, run in runs.items()
    }
    maps = branches(DEPTH, 16, generator=torch.Generator().manual_seed(0), gain=0.2)
    inputs = torch.ones(16, dtype=torch.float64)
    without, within = (jacobian_range(maps, inputs, with_skips=skips) for skips in names)
    low, high = within.skip_bounds
    return TopicResult(
        {
            "branches": DEPTH,
            "without skips, a step of the input shrinks by more than 10^10": without.largest
            < 1e-10,
            "with skips, least and greatest singular value are inside the bounds": bool(
                low <= within.smallest <= within.largest <= high
            ),
        },
        measured={
            "singular values of the derivative, with skips": [within.smallest, within.largest],
            "their bounds": [low, high],
            "first gradient of the first branch, without skips": runs[False].first_gradients[0],
            "first gradient of the first branch, with skips": runs[True].first_gradients[0],
            "accuracy after 100 steps, without skips": runs[False].accuracy,
            "accuracy after 100 steps, with skips": runs[True].accuracy,
        },
        pictures={
            "gradients": lambda path: draw_curves(
                gradients,
                Axes("First gradient of each branch", "branch", "norm", is_log_up=True),
                path,
            ),
            "losses": lambda path: draw_curves(
                losses, Axes(f"{DEPTH} branches learn two spirals", "step", "loss"), path
            ),
            "diagram": lambda path: draw(from_module(Residual().eval(), (1, 16)), path),
        },
    )


TRAINING = (
    Topic(
        "regularizers",
        "Regularizers: L1, L2, weight decay, dropout, early stopping",
        "A network with more weights than points can learn noise by heart. An L1 penalty makes "
        "weights exactly zero; an L2 penalty makes them small, and for plain gradient descent is "
        "the same as weight decay, step by step (not so for Adam); dropout leaves out half of the "
        "units each time; early stopping takes the best network on held-out points. Here 40 noisy "
        "points with 20 inputs, of which 3 matter, and 64 hidden units.",
        lecture_theorem("section 1.6 (a list)"),
        _regularizers,
    ),
    Topic(
        "data-augmentation",
        "Data augmentation",
        "Copies of the examples that mean the same teach what does not matter. Noise on the inputs "
        "of least squares adds the penalty σ² |w|² to the expected loss, so it is ridge "
        "regression: copies moved by ± σ √d along each axis do it exactly. Copies that are moved "
        "teach a network to know patterns wherever they stand; it must know what moves are "
        "harmless, and pays where the examples stood. Here four noisy patterns on a circle of 16 "
        "places, ten examples of each.",
        recalled_theorem("Bishop (1995)", "section 2", None, "squared loss", "a linear model"),
        _augmentation,
    ),
    Topic(
        "skip-connections",
        "Skip connections",
        "With skips the derivative of each block is I + J instead of J. If the norms of all J are "
        "below 1, all singular values of the whole are between the products of 1 - ‖J‖ and of 1 + "
        "‖J‖: nothing is lost on the way. Without skips norms multiply: signal and gradients of "
        "deep networks fade unless every layer is scaled just right.",
        recalled_theorem("He, Zhang, Ren & Sun (2016)", "section 3", "1512.03385", "equal sizes"),
        _skips,
    ),
)

TOPICS = {topic.name: topic for topic in (*LAYERS, *LEARNING, *TRAINING)}
