import copy
import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from rankscope.diagrams import to_module
from rankscope.errors import LayerError
from rankscope.factorize import (
    FORMATS,
    FactorizedGRU,
    FactorizedLinear,
    FactorizedLSTM,
    FactorizedRecurrent,
    Path,
    RecurrentSettings,
    WeightShape,
    gru_step,
    lstm_step,
    split_weights,
)
from rankscope.factorize.recurrent import dense_state, flat_weights
from rankscope.factorize.recurrent_steps import State, scan

SVD = FORMATS["svd"]
SETTINGS: list[dict[str, int | bool]] = [
    {},
    {"bias": False},
    {"num_layers": 2, "batch_first": True},
    {"num_layers": 2, "bidirectional": True},
]
ALL = [
    *itertools.product([(FactorizedLSTM, nn.LSTM)], [*SETTINGS, {"proj_size": 2}]),
    ((FactorizedLSTM, nn.LSTM), {"proj_size": 2, "num_layers": 2, "bidirectional": True}),
    *itertools.product([(FactorizedGRU, nn.GRU)], SETTINGS),
]
Classes = tuple[type[FactorizedRecurrent], type[nn.LSTM] | type[nn.GRU]]


def _dense(dense_class: type[nn.LSTM] | type[nn.GRU], **settings: int | bool) -> nn.RNNBase:
    torch.manual_seed(0)
    return dense_class(4, 5, dtype=torch.float64, **settings)


def _at_full_rank(
    factorized: type[FactorizedRecurrent], dense: nn.RNNBase, path: Path
) -> FactorizedRecurrent:
    choices = {
        name: (SVD, SVD.full_ranks(WeightShape.of(linear.weight)))
        for name, linear in split_weights(dense).items()
    }
    return factorized.from_dense(dense, choices, path=path)


def _tensors(state: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def _start(dense: nn.RNNBase, batch: int) -> Tensor | tuple[Tensor, Tensor]:
    runs = dense.num_layers * (2 if dense.bidirectional else 1)
    hidden = torch.randn(runs, batch, dense.proj_size or 5, dtype=torch.float64)
    if isinstance(dense, nn.GRU):
        return hidden
    return hidden, torch.randn(runs, batch, 5, dtype=torch.float64)


def _assert_same(got: tuple[Tensor, object], wanted: tuple[Tensor, object]) -> None:
    torch.testing.assert_close(got, wanted, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("path", Path)
@pytest.mark.parametrize(("classes", "settings"), ALL, ids=str)
def test_at_full_rank_it_is_the_dense_layer(
    classes: Classes, settings: dict[str, int | bool], path: Path
) -> None:
    dense = _dense(classes[1], **settings)
    layer = _at_full_rank(classes[0], dense, path)
    inputs = torch.randn(3, 7, 4, dtype=torch.float64)
    start = _start(dense, 3 if dense.batch_first else 7)
    _assert_same(layer(inputs), dense(inputs))
    _assert_same(layer(inputs, start), dense(inputs, start))
    single = tuple(part[:, 0] for part in _tensors(start))
    state = single if isinstance(dense, nn.LSTM) else single[0]
    _assert_same(layer(inputs[0], hx=state), dense(inputs[0], state))


@pytest.mark.parametrize("path", [Path.CHAIN, Path.MERGED])
@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize(("classes", "settings"), ALL, ids=str)
def test_packed_sequences_stay_packed(
    classes: Classes, settings: dict[str, int | bool], sort: bool, path: Path
) -> None:
    dense = _dense(classes[1], **settings)
    layer = _at_full_rank(classes[0], dense, path)
    lengths = (5, 3, 2) if sort else (2, 5, 3)
    parts = [torch.randn(length, 4, dtype=torch.float64) for length in lengths]
    packed = pack_sequence(parts, enforce_sorted=sort)
    start = _start(dense, 3)
    for state in (None, start):
        outputs, last = layer(packed, state)
        wanted, wanted_last = dense(packed, state)
        assert isinstance(outputs, PackedSequence)
        _assert_same((outputs.data, last), (wanted.data, wanted_last))
        assert torch.equal(outputs.batch_sizes, wanted.batch_sizes)
        assert (outputs.unsorted_indices is None) == (wanted.unsorted_indices is None)


@pytest.mark.parametrize("path", Path)
@pytest.mark.parametrize(("classes", "settings"), ALL, ids=str)
def test_paths_and_the_dense_layer_it_stands_for_agree(
    classes: Classes, settings: dict[str, int | bool], path: Path
) -> None:
    dense = _dense(classes[1], **settings)
    choices = dict.fromkeys(split_weights(dense), (SVD, (2,)))
    layer = classes[0].from_dense(dense, choices, path=path)
    inputs = torch.randn(3, 7, 4, dtype=torch.float64)
    _assert_same(layer(inputs), layer.to_dense()(inputs))


@pytest.mark.parametrize("classes", [(FactorizedLSTM, nn.LSTM), (FactorizedGRU, nn.GRU)])
def test_gradients_agree_on_every_path(classes: Classes) -> None:
    dense = _dense(classes[1], num_layers=2, bidirectional=True)
    choices = {"weight_ih_l0": (SVD, (2,)), "weight_hh_l1_reverse": (SVD, (3,))}
    inputs = torch.randn(3, 7, 4, dtype=torch.float64)
    found = []
    for path in Path:
        layer = classes[0].from_dense(dense, choices, path=path)
        layer(inputs)[0].square().sum().backward()
        found.append({name: value.grad for name, value in layer.named_parameters()})
    assert all(gradient is not None for gradient in found[0].values())
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


def test_a_merged_weight_follows_its_cores() -> None:
    layer = FactorizedGRU.from_dense(
        _dense(nn.GRU), {"weight_ih_l0": (SVD, (2,))}, path=Path.MERGED
    ).eval()
    inputs = torch.randn(3, 7, 4, dtype=torch.float64)
    with torch.no_grad():
        before = layer(inputs)[0]
        assert torch.equal(layer(inputs)[0], before)
        for parameter in layer.parameters():
            parameter.mul_(2)
        after = layer(inputs)
        assert not torch.equal(after[0], before)
        _assert_same(after, layer.to_dense()(inputs))


@pytest.mark.parametrize("classes", [(FactorizedLSTM, nn.LSTM), (FactorizedGRU, nn.GRU)])
def test_dropout_acts_between_layers_in_training_only(classes: Classes) -> None:
    torch.manual_seed(0)
    # Everything is dropped, so that what comes out is certain.
    dense = classes[1](4, 5, num_layers=2, dropout=1.0)
    layer = classes[0].of(dense)
    inputs = torch.randn(3, 7, 4)
    torch.testing.assert_close(layer(inputs), dense(inputs))
    assert not torch.equal(layer(inputs)[0], layer.eval()(inputs)[0])
    torch.testing.assert_close(layer(inputs), dense.eval()(inputs))
    assert layer.to_dense().dropout == 1.0


def test_only_the_named_weights_are_factorized() -> None:
    dense = nn.LSTM(20, 30, num_layers=2).eval()
    layer = FactorizedLSTM.from_dense(dense, {"weight_hh_l1": (SVD, (4,))})
    kinds = {name: type(layer.weight(name)) for name in layer.weights}
    assert kinds == dict.fromkeys(kinds, nn.Linear) | {"weight_hh_l1": FactorizedLinear}
    assert not any(module.training for module in layer.modules())
    # Cores of 120 x 4 and 4 x 30 in place of 120 x 30.
    counts = [sum(p.numel() for p in module.parameters()) for module in (dense, layer)]
    assert counts[0] - counts[1] == 120 * 30 - 120 * 4 - 4 * 30


def test_models_find_what_they_ask_a_recurrent_layer_for() -> None:
    dense = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    layer = FactorizedLSTM.of(dense)
    layer.flatten_parameters()
    for name in ("input_size", "hidden_size", "num_layers", "bidirectional", "batch_first"):
        assert getattr(layer, name) == getattr(dense, name)
    assert "hidden_size=4" in layer.extra_repr()
    assert "path=chain" in layer.extra_repr()


@pytest.mark.parametrize("path", Path)
@pytest.mark.parametrize("classes", [(FactorizedLSTM, nn.LSTM), (FactorizedGRU, nn.GRU)])
def test_state_copies_and_quantized_cores(classes: Classes, path: Path) -> None:
    torch.manual_seed(0)
    dense = classes[1](16, 8)
    choices = dict.fromkeys(("weight_ih_l0", "weight_hh_l0"), (SVD, (4,)))
    layer = classes[0].from_dense(dense, choices, path=path).eval()
    inputs = torch.randn(5, 3, 16)
    with torch.no_grad():
        wanted = layer(inputs)[0]
        twin = copy.deepcopy(layer)
        for parameter in twin.parameters():
            nn.init.zeros_(parameter)
        twin.load_state_dict(layer.state_dict())
        assert torch.equal(twin(inputs)[0], wanted)
        twin.quantize(8)
        quantized = twin(inputs)[0]
    # Codes of 8 bits are off by at most 1/254 of the largest number in a row of a core.
    assert not torch.equal(quantized, wanted)
    torch.testing.assert_close(quantized, wanted, atol=0.05, rtol=0.05)
    torch.testing.assert_close(twin.to_dense()(inputs)[0], quantized)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("classes", "path"),
    [((FactorizedLSTM, nn.LSTM), Path.CHAIN), ((FactorizedGRU, nn.GRU), Path.MERGED)],
)
def test_it_exports_and_compiles(classes: Classes, path: Path) -> None:
    torch.compiler.reset()  # else sizes that changed since other tests are no integers
    dense = _dense(classes[1], bidirectional=True)
    layer = classes[0].from_dense(dense, {"weight_hh_l0": (SVD, (2,))}, path=path).eval()
    inputs = torch.randn(4, 2, 4, dtype=torch.float64)
    with torch.no_grad():
        wanted = layer(inputs)
        exported = torch.export.export(layer, (inputs,)).module()
        torch.testing.assert_close(exported(inputs), wanted)
        compiled = torch.compile(layer, backend="aot_eager")
        torch.testing.assert_close(compiled(inputs), wanted)


@pytest.mark.parametrize("name", ["svd", "r-tensor-train"])
@pytest.mark.parametrize("suffix", ["l0", "l1_reverse"])
@pytest.mark.parametrize(
    ("classes", "settings"),
    [
        ((FactorizedLSTM, nn.LSTM), {}),
        ((FactorizedLSTM, nn.LSTM), {"proj_size": 4, "bias": False}),
        ((FactorizedGRU, nn.GRU), {}),
        ((FactorizedGRU, nn.GRU), {"bias": False}),
    ],
    ids=str,
)
def test_its_diagram_is_one_step(
    classes: Classes, settings: dict[str, int | bool], suffix: str, name: str
) -> None:
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "bidirectional": True, "dtype": torch.float64}
    dense = classes[1](8, 6, **sizes, **settings)
    choices = {}
    for kind in ("ih", "hh"):
        weight = getattr(dense, f"weight_{kind}_{suffix}")
        ranks = FORMATS[name].largest_ranks(WeightShape.of(weight), weight.numel() // 2)
        assert ranks is not None
        choices[f"weight_{kind}_{suffix}"] = (FORMATS[name], ranks)
    layer = classes[0].from_dense(dense, choices)
    drawn = to_module(layer.diagram(suffix), dict(layer.named_parameters()))
    sizes_of = {"x": getattr(dense, f"weight_ih_{suffix}").shape[1]}
    sizes_of |= {"h": dense.proj_size or 6} | ({"c": 6} if isinstance(dense, nn.LSTM) else {})
    values = {key: torch.randn(size, dtype=torch.float64) for key, size in sizes_of.items()}
    assert set(drawn.input_names) == set(values)
    state = tuple(values[key][None] for key in "hc" if key in values)
    gates = layer.weight(f"weight_ih_{suffix}")(values["x"][None])
    wanted = layer._step(suffix)(gates, state)[0][0]
    torch.testing.assert_close(drawn(**values), wanted)


def test_other_layers_and_unknown_weights_are_refused() -> None:
    dense = nn.GRU(4, 5)
    with pytest.raises(LayerError, match=r"FactorizedLSTM needs an nn.LSTM, got GRU"):
        FactorizedLSTM.from_dense(dense, {})
    message = "no weight 'weight_hh_l1'; choose among weight_ih_l0, weight_hh_l0"
    with pytest.raises(LayerError, match=message):
        FactorizedGRU.from_dense(dense, {"weight_hh_l1": (SVD, (2,))})
    with pytest.raises(LayerError, match=message):
        FactorizedGRU.of(dense, {"weight_hh_l1": nn.Linear(5, 15)})
    with pytest.raises(LayerError, match="has no layer 'l0_reverse'; choose among l0"):
        FactorizedGRU.of(dense).diagram("l0_reverse")


def test_inputs_and_states_of_another_shape_are_refused() -> None:
    layer = FactorizedLSTM.of(nn.LSTM(4, 5, batch_first=True))
    with pytest.raises(LayerError, match=r"\(batch, time, 4\), or \(time, 4\), got .* \(2, 3, 5\)"):
        layer(torch.zeros(2, 3, 5))
    with pytest.raises(LayerError, match=r"at least 1 step in time, .* \(2, 0, 4\)"):
        layer(torch.zeros(2, 0, 4))
    with pytest.raises(LayerError, match=r"at least 1 step in time, .* \(0, 4\)"):
        layer(torch.zeros(0, 4))
    wanted = r"shapes \[\(1, 2, 5\), \(1, 2, 5\)\].* got \[\(1, 2, 5\), \(1, 3, 5\)\]"
    with pytest.raises(LayerError, match=wanted):
        layer(torch.zeros(2, 3, 4), (torch.zeros(1, 2, 5), torch.zeros(1, 3, 5)))


def test_an_lstm_step_is_its_formula_entry_by_entry(generator: torch.Generator) -> None:
    gates, hidden, cell = (
        torch.randn(3, n, generator=generator, dtype=torch.float64) for n in (8, 2, 2)
    )
    matrix = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    after = lstm_step(gates, (hidden, cell), lambda state: state @ matrix.mT, None)
    for sample in range(3):
        for unit in range(2):
            i, f, g, o = (
                gates[sample, unit + 2 * place] + matrix[unit + 2 * place] @ hidden[sample]
                for place in range(4)
            )
            kept = torch.sigmoid(f) * cell[sample, unit] + torch.sigmoid(i) * torch.tanh(g)
            torch.testing.assert_close(after[1][sample, unit], kept)
            torch.testing.assert_close(after[0][sample, unit], torch.sigmoid(o) * torch.tanh(kept))


def test_a_projection_acts_on_the_hidden_state_only(generator: torch.Generator) -> None:
    gates, hidden, cell = (torch.randn(3, n, generator=generator) for n in (8, 1, 2))
    matrix = torch.randn(8, 1, generator=generator)
    plain = lstm_step(gates, (hidden, cell), lambda state: state @ matrix.mT, None)
    small = lstm_step(
        gates, (hidden, cell), lambda state: state @ matrix.mT, lambda state: state.sum(1)[:, None]
    )
    assert torch.equal(small[0], plain[0].sum(1)[:, None])
    assert torch.equal(small[1], plain[1])


def test_the_reset_gate_acts_after_the_recurrent_matrix_and_its_bias() -> None:
    # All gates at zero but the last: reset and update are 1/2, and n = tanh(1 + 3/2).
    from_input = torch.tensor([[0.0, 0.0, 1.0]])
    hidden = torch.tensor([[4.0]])
    (after,) = gru_step(from_input, (hidden,), lambda state: torch.tensor([[0.0, 0.0, 3.0]]))
    torch.testing.assert_close(after, (torch.tanh(torch.tensor([[2.5]])) + 4.0) / 2)


@pytest.mark.parametrize("is_reverse", [False, True])
def test_walks_stop_where_a_sample_ends(is_reverse: bool) -> None:
    def step(inputs: Tensor, state: State) -> State:
        return (10 * state[0] + inputs,)

    inputs = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])[..., None]
    outputs, (last,) = scan(
        step,
        inputs,
        (torch.zeros(2, 1),),
        is_reverse=is_reverse,
        lengths=torch.tensor([3, 2]),
    )
    if is_reverse:
        assert outputs[..., 0].tolist() == [[321.0, 21.0], [32.0, 2.0], [3.0, 0.0]]
        assert last.tolist() == [[321.0], [21.0]]
    else:
        assert outputs[..., 0].tolist() == [[1.0, 1.0], [12.0, 12.0], [123.0, 12.0]]
        assert last.tolist() == [[123.0], [12.0]]


LAYERS: list[nn.RNNBase] = [
    nn.LSTM(3, 4),
    nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2),
    nn.LSTM(3, 4, bias=False, proj_size=1),
    nn.GRU(3, 4, num_layers=3, bidirectional=True, batch_first=True, dropout=0.5),
]


@pytest.mark.parametrize("dense", LAYERS, ids=str)
def test_names_are_those_of_pytorch_in_its_order(dense: nn.RNNBase) -> None:
    wanted = [name for name, _ in dense.named_parameters() if name.startswith("weight")]
    assert list(RecurrentSettings.of(dense).weight_names) == wanted


@pytest.mark.parametrize("dense", LAYERS, ids=str)
def test_the_state_of_what_was_split_is_the_same(dense: nn.RNNBase) -> None:
    wanted, got = dense.state_dict(), dense_state(split_weights(dense))
    assert wanted.keys() == got.keys()
    assert all(torch.equal(wanted[name], got[name]) for name in wanted)
    shared = {tensor.data_ptr() for tensor in wanted.values()}
    assert not shared & {tensor.data_ptr() for tensor in got.values()}


@pytest.mark.parametrize("dense", LAYERS, ids=str)
def test_flat_weights_are_in_the_order_of_the_fused_kernel(dense: nn.RNNBase) -> None:
    linears = split_weights(dense)
    weights = {name: linear.weight for name, linear in linears.items()}
    biases = {name: linear.bias for name, linear in linears.items()}
    for got, wanted in zip(flat_weights(weights, biases), dense.parameters(), strict=True):
        assert torch.equal(got, wanted)


def test_sizes_follow_from_the_settings() -> None:
    settings = RecurrentSettings.of(LAYERS[1])
    assert (settings.num_directions, settings.out_size) == (2, 2)
    assert (RecurrentSettings(3, 4).num_directions, RecurrentSettings(3, 4).out_size) == (1, 4)
    runs = [("l0", False), ("l0_reverse", True), ("l1", False), ("l1_reverse", True)]
    assert list(settings.runs()) == runs
