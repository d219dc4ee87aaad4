"""Nothing is certified that floats refute: counterexamples, exact oracles, searches for more."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from rankscope.errors import RobustnessError
from rankscope.factorize import FORMATS, FactorizedLinear
from rankscope.robust import (
    FLOAT64,
    L2,
    LIBRARY,
    Arithmetic,
    Ball,
    Intervals,
    LinearBounds,
    Linf,
    Lipschitz,
    Method,
    Norm,
    OrthogonalConv2d,
    ProductSquares,
    ProjectedDescent,
    Threat,
    WideResNet,
    above,
    certified_radii,
    certify,
    edge_points,
    lipschitz_bound,
    operator_norm,
    propagate_intervals,
    propagate_linear_bounds,
    read_transfer_functions,
    unit_spreads,
)
from rankscope.robust.rounding import own_floats

flint = pytest.importorskip("flint")

METHODS: list[Method] = [Lipschitz(), Intervals(), LinearBounds()]
QUICK = ProjectedDescent(steps=1)


def cancelling(bias: float, threshold: float) -> nn.Sequential:
    """x + bias, then both signs of its distance from a threshold."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    first, last = model[0], model[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.bias.fill_(bias)
        last.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        last.bias.copy_(torch.tensor([-bias - threshold, bias + threshold]))
    return model


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_rounding_inside_of_a_network_is_not_certified_away(method: Method) -> None:
    """65536 + 0.49609375 is rounded to 65536.5 in float32, where the label changes."""
    model, inputs = cancelling(65536.0, 0.5), torch.tensor([[0.43]])
    labels = model(inputs).argmax(dim=1)
    wrong = torch.tensor([[0.49609375]])
    assert float((wrong.double() - inputs.double()).abs()) < 0.066094007
    assert int(model(wrong).argmax()) != int(labels)
    (row,) = certify(model, inputs, labels, [0.066094007], method=method, attack=QUICK).radii
    assert (row.certified, row.certified_exact_arithmetic) == (0.0, 1.0)
    # An attack that stays a hundred-thousandth inside does not see it; the walk to the edge does.
    assert row.attacked == 0.0
    (row,) = certify(model, inputs, labels, [0.01], method=method, attack=QUICK).radii
    assert (row.certified, row.attacked) == (1.0, 1.0)


@pytest.mark.slow
@settings(deadline=None, max_examples=12)
@given(
    bias=st.sampled_from([0.0, 1.0, 2.0**10, 2.0**16, 2.0**20]),
    seed=st.integers(0, 2**16),
    method=st.sampled_from(METHODS),
    scale=st.sampled_from([1.0, 2.0**-140, 2.0**40]),
)
def test_no_float_input_of_a_certified_ball_has_another_label(
    bias: float, seed: int, method: Method, scale: float
) -> None:
    """Large offsets, cancellation and denormals; every point that is tried is float32."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    first, last = model[0], model[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        first.bias.add_(bias)
        last.bias.sub_(last.weight.sum(dim=1) * bias)
        last.weight.mul_(scale)
        last.bias.mul_(scale)
    inputs = torch.rand(8, 3)
    with torch.no_grad():
        labels = model(inputs).argmax(dim=1)
    radius = 10.0 ** -(seed % 5)
    # `certify` raises if the walk to the edge breaks a certified sample.
    found = certify(model, inputs, labels, [radius], method=method, attack=QUICK)
    assert found.radii[0].certified <= found.radii[0].certified_exact_arithmetic
    assert found.radii[0].certified <= found.radii[0].attacked


def test_kernels_that_cancel_have_the_norm_of_what_is_left() -> None:
    layer = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular", bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[[1e16, 1.0, -1e16]]], dtype=torch.float64))
    found = operator_norm(layer, (1, 2))
    assert found.lower <= 1.0 <= found.upper


@pytest.mark.parametrize("scale", [1e-290, 1e-200, 1.0, 1e200])
def test_tiny_and_huge_kernels_that_cancel_count_what_rounding_leaves(scale: float) -> None:
    layer = nn.Conv1d(2, 2, 3, padding=1, padding_mode="circular", groups=2, bias=False).double()
    kernel = torch.tensor([1e16, 1.0, -1e16], dtype=torch.float64) * scale
    with torch.no_grad():
        layer.weight.copy_(kernel.expand(2, 1, 3))
    found = operator_norm(layer, (2, 2))
    # On two places both ends meet, and cancel.
    assert found.lower <= float(kernel[1]) <= found.upper < 1e4 * scale


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e-290])
def test_tiny_weights_do_not_make_a_network_flat(method: Method, scale: float) -> None:
    """Squares of differences below 1e-162 are flushed to zero: distances must not be."""
    layer = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2) * scale)
    inputs = torch.tensor([[0.6, 0.5]], dtype=torch.float64)
    model = nn.Sequential(layer)
    found = certify(model, inputs, torch.tensor([0]), [0.05, 0.1], method=method, attack=QUICK)
    # The other label is at 0.1 over the root of 2.
    assert found.radii[1].certified == found.radii[1].certified_exact_arithmetic == 0


@settings(deadline=None, max_examples=15)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    seed=st.integers(0, 2**16),
    exponent=st.sampled_from([0, 8, 16, 100, -300, 300]),
)
def test_norms_of_matrices_are_above_the_exact_ones(
    rows: int, columns: int, seed: int, exponent: int
) -> None:
    """t² I - AᵀA has no negative eigenvalue in ball arithmetic, for t the upper bound."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    shares = torch.rand(rows, 1, generator=generator).double()
    # Where all entries are tiny or huge, their squares are no float64 numbers.
    weight = weight * 10.0 ** (exponent if abs(exponent) > 200 else exponent * shares)
    layer = nn.Linear(columns, rows, bias=False, dtype=torch.float64)
    layer.weight = nn.Parameter(weight)
    found = operator_norm(layer, (columns,))
    with flint.ctx.workprec(2400):
        exact = flint.arb_mat(weight.tolist())
        square = exact.transpose() * exact
        # Every eigenvalue of a symmetric matrix is below t² if all leading minors are positive.
        rest = flint.arb_mat(columns, columns, [flint.arb(0)] * columns**2)
        for i in range(columns):
            for j in range(columns):
                own = flint.arb(found.upper) ** 2 if i == j else flint.arb(0)
                rest[i, j] = own - square[i, j]
        for size in range(1, columns + 1):
            part = flint.arb_mat([[rest[i, j] for j in range(size)] for i in range(size)])
            assert part.det() > 0
    assert found.lower <= found.upper <= found.lower * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_kernels_that_are_built_have_the_norm_of_their_own_floats(seed: int) -> None:
    """Of the rounded kernel, and not of the one that float64 would build of the parameters."""
    torch.manual_seed(seed)
    layer = OrthogonalConv2d(4, 4, 3, padding_mode="zeros", bias=False)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    kernel = layer.weight().detach().double()
    pixels = torch.eye(100, dtype=torch.float64).view(100, 4, 5, 5)
    written_out = functional.conv2d(pixels, kernel, padding=1).flatten(1)
    norm = float(torch.linalg.matrix_norm(written_out, 2))
    found = operator_norm(layer, (4, 5, 5))
    assert found.lower <= norm * (1 + 1e-12)
    assert found.upper >= norm * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_products_of_cores_have_the_norm_of_the_exact_product(seed: int) -> None:
    torch.manual_seed(seed)
    layer = FactorizedLinear.from_dense(nn.Linear(6, 5, bias=False), FORMATS["svd"], (4,))
    exact = layer.double().to_dense().weight.detach()
    norm = float(torch.linalg.matrix_norm(exact, 2))
    found = operator_norm(layer.float(), (6,))
    assert found.lower <= norm * (1 + 1e-12)
    assert norm * (1 - 1e-12) <= found.upper <= norm * (1 + 1e-9)


@settings(deadline=None, max_examples=25)
@given(
    count=st.integers(1, 40),
    seed=st.integers(0, 2**16),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    offset=st.sampled_from([0.0, 2.0**12]),
)
def test_sums_in_any_order_are_within_their_error(
    count: int, seed: int, dtype: torch.dtype, offset: float
) -> None:
    """The worst of many orders, added up one by one, against exact sums."""
    generator = torch.Generator().manual_seed(seed)
    terms = (torch.randn(count, generator=generator).double() + offset).to(dtype)
    terms = terms * (torch.randint(0, 2, (count,), generator=generator) * 2 - 1).to(dtype)
    exact = math.fsum(terms.double().tolist())
    size = terms.double().abs().sum()
    own = Arithmetic.of(dtype)
    orders = [torch.randperm(count, generator=generator) for _ in range(8)]
    orders += [terms.argsort(), terms.argsort(descending=True)]
    for order in orders:
        total = torch.zeros((), dtype=dtype)
        for term in terms[order]:
            total = total + term
        error = abs(float(total) - exact)
        assert error <= own.gamma(count) * (float(size) + abs(exact)) / 2 + own.gamma(
            count
        ) ** 2 * (float(size))


def sum_by_a_tree(terms: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Adds any two of what is left, or always the first two; most of the first ones in a row."""
    left: list[torch.Tensor] = list(terms)
    while len(left) > 1:
        far = int(torch.randint(1, len(left), (), generator=generator)) if len(left) % 3 else 1
        left = [left[0] + left[far], *left[1:far], *left[far + 1 :]]
    return left[0]


@settings(deadline=None, max_examples=25)
@given(
    count=st.integers(2, 60),
    seed=st.integers(0, 2**16),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    is_sorted=st.booleans(),
)
def test_sums_by_any_tree_are_within_the_bound_by_squares(
    count: int, seed: int, dtype: torch.dtype, is_sorted: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    terms = torch.randn(count, generator=generator).to(dtype)
    if is_sorted:  # the worst: partial sums rise, and fall again
        terms = terms.sort(descending=True).values
    exact = math.fsum(terms.double().tolist())
    of_squares, of_result = ProductSquares.shares(Arithmetic.of(dtype), count)
    allowed = of_squares * float(terms.double().norm()) + of_result * abs(exact)
    for total in (sum_by_a_tree(terms, generator), sum_by_a_tree(terms.flip(0), generator)):
        assert abs(float(total) - exact) <= allowed


@pytest.mark.parametrize("count", [5, 40, 400])
def test_the_worst_order_of_the_worst_terms_attains_the_bound_by_squares(count: int) -> None:
    """Terms that fall evenly, added up from the first."""
    weights = torch.tensor([count - max(1, place) for place in range(count)], dtype=torch.float64)
    terms = weights - weights.mean()
    partial = float(terms.cumsum(0)[1:].abs().sum())
    allowed = math.sqrt((count + 3) ** 3 / 12) * float(terms.norm())
    assert 1 - 5 / count <= partial / allowed <= 1


LAYERS = [
    (nn.Conv2d(4, 6, 3, padding=1, groups=2), (4, 5, 5)),
    (nn.Conv2d(4, 6, 3, stride=2), (4, 7, 7)),
    (nn.Conv1d(2, 3, 5, padding=4, padding_mode="circular"), (2, 5)),
    (nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), (4, 3, 3)),
    (nn.Linear(7, 4), (7,)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda part: type(part).__name__)
def test_squares_and_sizes_of_products_are_those_of_a_layer_written_out(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    (transfer,) = read_transfer_functions(layer, shape, precise=True)[1]
    rounding = transfer.rounding
    assert rounding is not None
    assert rounding.products is not None
    inputs = torch.randn(3, *shape, dtype=torch.float64)
    squares = copy.deepcopy(layer).double()
    with torch.no_grad():
        for weight in squares.parameters():
            weight.square_()
        # Two products that meet in one place are one weight here: at least as much.
        length = squares(inputs.square()).flatten(1).sum(dim=1).sqrt()
        assert (rounding.products.length(inputs) >= length * (1 - 1e-12)).all()
        inside = rounding.products.length(inputs + 1e-3) - rounding.products.length(inputs)
        assert (inside <= rounding.products.steepest * 1e-3 * inputs[0].numel() ** 0.5).all()
        # In float32, and not below what float64 has.
        plain = replace(rounding, short=None)
        sizes = (inputs.abs() * 10.0 ** torch.randint(-45, 30, inputs.shape)).clamp(max=1e30)
        found, wanted = rounding.magnitude(sizes), plain.magnitude(sizes)
        assert rounding.short is not None
        assert (found >= wanted * (1 - 1e-12)).all()
        assert (found <= wanted * (1 + 1e-4) + 1e-7 * float(sizes.max())).all()
        if isinstance(layer, nn.ConvTranspose2d):
            assert rounding.terms is None
            return
        assert rounding.terms is not None
        terms = rounding.terms(inputs[:1])
        assert terms.shape[1] <= rounding.count
        outputs = copy.deepcopy(layer).double()(inputs[:1]).flatten()
        torch.testing.assert_close(terms.sum(dim=1), outputs)
        assert terms.norm() <= rounding.products.length(inputs[:1]) * (1 + 1e-12)
        torch.testing.assert_close(
            terms.abs().sum(dim=1), plain.magnitude(inputs[:1].abs()).flatten()
        )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_terms_of_kernels_that_are_built_add_up_to_outputs(size: int, bias: bool) -> None:
    layer = OrthogonalConv2d(2, 4, size, bias=bias)
    (transfer,) = read_transfer_functions(layer, (2, 2, 2), precise=True)[1]
    assert transfer.rounding is not None
    assert transfer.rounding.terms is not None
    inputs = torch.randn(1, 2, 2, 2, dtype=torch.float64)
    with torch.no_grad():
        terms = transfer.rounding.terms(inputs)
        wanted = layer(inputs.float()).flatten()
    assert terms.shape == (16, 2 * size**2 + bias)
    torch.testing.assert_close(terms.sum(dim=1).float(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_where_only_rounding_is_in_the_way_it_is_looked_at_closely() -> None:
    """Radii next to what exact arithmetic proves: none is certified so near, and some before."""
    torch.manual_seed(0)
    model = WideResNet(10, 1, image=(1, 8, 8)).eval()
    inputs = torch.rand(1, 1, 8, 8)
    with torch.no_grad(), own_floats():
        outputs = model(inputs)
    labels = outputs.argmax(dim=1)
    (last,) = certified_radii(outputs, labels, lipschitz_bound(model, (1, 8, 8))).tolist()
    found = certify(model, inputs, labels, [0.5 * last, (1 - 1e-4) * last], attack=QUICK)
    assert [row.certified_exact_arithmetic for row in found.radii] == [1, 1]
    assert [row.certified for row in found.radii] == [1, 0]


def test_the_middle_of_a_ball_is_not_taken_to_be_exact() -> None:
    """In float64, 1e16 x + y - 1e16 x may be anything but y: exact certificates count that, too."""
    model = nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 2)).double()
    first, last = model[0], model[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    centres = torch.tensor([[0.3, 0.25, 0.3]], dtype=torch.float64)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1e16, 1.0, -1e16]]))
        first.bias.fill_(4.0)
        last.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        graph, transfers = read_transfer_functions(model, (3,), precise=True)
        ball = Ball(centres, 1e-30, L2(), is_exact=True)
        spreads = unit_spreads(graph, transfers, ball.norm)
        box = propagate_intervals(graph, transfers, ball, spreads)[graph.nodes[0].output]
    assert float(box.lower) <= 4.25 <= float(box.upper)


@pytest.mark.parametrize(
    "function",
    [
        *(functional.gelu, functional.silu, functional.mish, functional.softplus, torch.tanh),
        *(torch.sigmoid, torch.erf, functional.logsigmoid, functional.elu, torch.sin),
        lambda x: functional.gelu(x, approximate="tanh"),
    ],
)
def test_library_functions_are_as_good_as_they_are_taken_to_be(function: object) -> None:
    assert callable(function)
    unit = Arithmetic.of(torch.float32).unit
    points = torch.cat([torch.linspace(-40, 40, 200_003), torch.randn(50_001)])
    error = (function(points).double() - function(points.double())).abs()
    assert float((error / (2 * points.double().abs() + 2)).max()) <= LIBRARY / 2 * unit


def test_exponentials_are_as_good_as_they_are_taken_to_be() -> None:
    points = torch.linspace(-80, 80, 200_003)
    exact = points.double().exp()
    error = (points.exp().double() - exact).abs() / exact
    assert float(error.max()) <= LIBRARY / 2 * Arithmetic.of(torch.float32).unit


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 2**16), norm=st.sampled_from([L2(), Linf()]))
def test_every_computed_value_is_within_its_box(seed: int, norm: Norm) -> None:
    """Boxes hold for float32 values, of one sample or many at once, rounding included."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3), nn.Softmax(dim=1)
    ).eval()
    first, second = model[0], model[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    with torch.no_grad():
        first.bias.add_(1000.0)
        second.bias.sub_(1000.0 * second.weight.sum(dim=1))
    centres = torch.rand(4, 5)
    radius = 10.0 ** -(seed % 6)
    graph, transfers = read_transfer_functions(model, (5,), precise=True)
    ball = Ball(centres.double(), radius, norm)
    threat = Threat(radius, norm, None)
    own = read_transfer_functions(model, (5,))[0]
    with torch.no_grad():
        for propagate in (propagate_intervals, propagate_linear_bounds):
            boxes = propagate(graph, transfers, ball, {})
            for _ in range(6):
                points = edge_points(centres, torch.randn(4, 5), threat)
                for count, node in enumerate(graph.nodes, start=1):
                    values = own.until(count).run(points).double()
                    box = boxes[node.output]
                    assert ((box.lower <= values) & (values <= box.upper)).all()


@pytest.mark.parametrize("norm", [L2(), Linf()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edge_points_are_the_last_ones_of_the_ball(norm: Norm, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(20, 3, generator=generator).to(dtype)
    directions = torch.randn(20, 3, generator=generator).to(dtype)
    if isinstance(norm, Linf):
        directions = directions.sign()
    threat = Threat(0.01, norm, (0.0, 1.0))
    points = edge_points(inputs, directions, threat)
    assert threat.holds(inputs, points).all()
    step = torch.finfo(dtype).eps
    lengths = norm.lengths(points.double() - inputs.double())
    inside = ((points > 0) & (points < 1)).all(dim=1)
    assert (lengths[inside] >= 0.01 - 4 * step).all()


def test_products_of_lower_precision_are_refused() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(RobustnessError, match="is 'medium'; set it to 'highest'"), own_floats():
            pass
    finally:
        torch.set_float32_matmul_precision(before)


def test_bounds_on_float64_numbers_are_never_below_them() -> None:
    assert above(0.1 + 0.2) > 0.1 + 0.2
    assert FLOAT64.gamma(10) >= 10 * 2.0**-53
    assert Arithmetic.of(torch.bfloat16).gamma(1000) == math.inf
