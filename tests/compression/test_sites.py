"""Every module with parameters gets a row: a site, or the reason why it is left alone."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from rankscope.compression import Uncompressed, read_sites
from rankscope.errors import CompressionError
from rankscope.factorize import FORMATS, FactorizedLinear


def reasons(model: nn.Module) -> dict[str, str]:
    return {left.name: left.reason for left in read_sites(model).uncompressed}


class Scaled(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


def mixed() -> nn.ModuleDict:
    return nn.ModuleDict(
        {
            "table": nn.Embedding(20, 6),
            "block": nn.TransformerEncoderLayer(6, 2, 10),
            "attention": nn.MultiheadAttention(6, 2, kdim=4, vdim=5, add_bias_kv=True),
            "rnn": nn.LSTM(6, 5, bidirectional=True, proj_size=3),
            "gru": nn.GRU(6, 5, bias=False),
            "wave": nn.Conv1d(6, 9, 3, groups=3),
            "image": nn.Conv2d(6, 4, (3, 2), padding="same"),
            "norm": nn.BatchNorm2d(4),
            "head": nn.Linear(6, 20),
        }
    )


def test_all_supported_weights_are_sites_with_their_own_shapes() -> None:
    sites = {site.name: tuple(site.weight.shape) for site in read_sites(mixed()).sites}
    assert sites == {
        "table": (1, 20, 6),
        "block.self_attn.query": (1, 6, 6),
        "block.self_attn.key": (1, 6, 6),
        "block.self_attn.value": (1, 6, 6),
        "block.self_attn.out": (1, 6, 6),
        "block.linear1": (1, 10, 6),
        "block.linear2": (1, 6, 10),
        "attention.query": (1, 6, 6),
        "attention.key": (1, 6, 4),
        "attention.value": (1, 6, 5),
        "attention.out": (1, 6, 6),
        "rnn.weight_ih_l0": (1, 20, 6),
        "rnn.weight_hh_l0": (1, 20, 3),
        "rnn.weight_hr_l0": (1, 3, 5),
        "rnn.weight_ih_l0_reverse": (1, 20, 6),
        "rnn.weight_hh_l0_reverse": (1, 20, 3),
        "rnn.weight_hr_l0_reverse": (1, 3, 5),
        "gru.weight_ih_l0": (1, 15, 6),
        "gru.weight_hh_l0": (1, 15, 5),
        "wave": (3, 3, 2, 3),
        "image": (1, 4, 6, 3, 2),
        "head": (1, 20, 6),
    }


def test_rows_count_every_parameter_once() -> None:
    model = mixed()
    model["head"].weight = model["table"].weight
    counted = sum(entry.num_parameters for entry in read_sites(model).entries)
    assert counted == sum(parameter.numel() for parameter in model.parameters())


def test_a_site_is_a_view_of_the_model() -> None:
    attention = nn.MultiheadAttention(4, 2)
    key = next(site for site in read_sites(attention).sites if site.name == "key")
    with torch.no_grad():
        attention.in_proj_weight[4:8].fill_(3.0)
    assert bool((key.weight == 3).all())


def test_reasons_name_what_is_in_the_way() -> None:
    shared = nn.Linear(4, 4)
    hooked, patched = nn.Linear(4, 4), nn.Linear(4, 4)
    hooked.register_forward_hook(lambda module, inputs, output: None)
    patched.__dict__["forward"] = torch.relu
    table, head = nn.Embedding(9, 4), Scaled(4, 9)
    head.weight = table.weight
    model = nn.ModuleDict(
        {
            "first": shared,
            "second": shared,
            "hooked": hooked,
            "patched": patched,
            "parametrized": parametrizations.orthogonal(nn.Linear(4, 4)),
            "table": table,
            "head": head,
            "norm": nn.LayerNorm(4),
            "depthwise": nn.Conv2d(4, 8, 3, groups=4),
            "grey": nn.Conv2d(1, 8, 3),
            "transposed": nn.ConvTranspose1d(4, 4, 2),
            "bilinear": nn.Bilinear(2, 3, 4),
            "subclass": Scaled(4, 4),
            "clipped": nn.Embedding(9, 4, max_norm=1.0, sparse=True),
            "complex": nn.Linear(4, 4, dtype=torch.complex64),
            "small": FactorizedLinear.from_dense(nn.Linear(8, 8), FORMATS["svd"], (2,)),
        }
    )
    assert reasons(model) == {
        "first": "shared module, also used as second",
        "hooked": "has 1 hook that would be lost",
        "patched": "its forward was replaced on the instance",
        "parametrized": "parametrized: its weight is computed from others on every call",
        "table": "tied: weight is also head.weight",
        "head": "unsupported class Scaled",
        "norm": "normalization: too few numbers to gain anything",
        "depthwise": "depthwise: each of its 4 groups sees one channel",
        "grey": "reads a single channel: there are no channels to factor",
        "transposed": "transposed convolution (ConvTranspose1d): not supported",
        "bilinear": "unsupported class Bilinear",
        "subclass": "unsupported class Scaled",
        "clipped": "embedding with max_norm and sparse: not supported",
        "complex": "weights that are not real floating-point numbers",
        "small": "already factorized",
    }
    assert read_sites(model).sites == ()


def test_a_weight_of_several_modules_is_one_site() -> None:
    table, head = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 9)
    head.weight = table.weight
    model = nn.ModuleDict({"table": table, "head": head, "last": nn.Linear(9, 9)})
    tied, last = read_sites(model).sites
    assert (tied.name, tied.also, tied.bias, tied.beside) == ("table", ("head",), 9, 4)
    assert last.also == ()
    assert reasons(model) == {"head": "tied: its weight is that of table, and changes with it"}
    assert [left.num_parameters for left in read_sites(model).uncompressed] == [0]
    left = read_sites(model, leave=["head"]).uncompressed
    assert {row.name: row.num_parameters for row in left} == {"table": 36, "head": 9}


def test_parameters_that_only_share_their_numbers_are_tied_too() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = nn.Parameter(first.weight.data)
    (site,) = read_sites(nn.Sequential(first, second)).sites
    assert (site.name, site.also) == ("0", ("1",))


def test_a_bias_may_stand_elsewhere_too() -> None:
    model = nn.ModuleDict({"head": nn.Linear(4, 9), "outer": Scaled(9, 9)})
    model["outer"].bias = model["head"].bias
    assert [site.name for site in read_sites(model).sites] == ["head"]
    counted = [left.num_parameters for left in read_sites(model).uncompressed]
    assert counted == [81]


def test_a_model_without_numbers_is_read_as_any_other() -> None:
    with torch.device("meta"):
        model = mixed()
    assert [site.name for site in read_sites(model).sites] == [
        site.name for site in read_sites(mixed()).sites
    ]


def test_what_is_asked_to_be_left_alone_is() -> None:
    reading = read_sites(mixed(), leave=["block", "rnn.weight_hh*", "head"])
    asked = [left.name for left in reading.uncompressed if left.reason == "left alone as asked"]
    assert asked == [
        "block.self_attn",
        "block.linear1",
        "block.linear2",
        "rnn.weight_hh_l0",
        "rnn.weight_hh_l0_reverse",
        "head",
    ]


def test_a_model_that_is_one_module_is_a_site_without_a_name() -> None:
    assert [site.name for site in read_sites(nn.Linear(3, 4)).sites] == [""]
    names = [site.name for site in read_sites(nn.MultiheadAttention(4, 2)).sites]
    assert names == ["query", "key", "value", "out"]
    (entry,) = read_sites(nn.LayerNorm(3)).entries
    assert isinstance(entry, Uncompressed)


def test_names_to_leave_that_nothing_matches_are_refused() -> None:
    with pytest.raises(CompressionError, match=r"matches 'tail'; there are 2: 0, 1\."):
        read_sites(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), leave=["tail"])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(bad: float) -> None:
    norm = nn.BatchNorm1d(2)
    nn.init.constant_(norm.weight[:1], bad)
    model = nn.Sequential(nn.Linear(3, 2), norm)
    with pytest.raises(CompressionError, match=r"1\.weight holds 1 NaN or infinite numbers of 2"):
        read_sites(model)


def test_half_precision_whose_sum_overflows_is_fine() -> None:
    model = nn.Linear(64, 64).half()
    with torch.no_grad():
        model.weight.fill_(60000.0)
    assert len(read_sites(model).sites) == 1


def test_a_lazy_module_must_have_seen_data() -> None:
    model = nn.LazyLinear(3)
    with pytest.raises(CompressionError, match=r"weight has no shape yet .* run the model once"):
        read_sites(model)
