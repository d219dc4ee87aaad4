"""A small GPT has GPT-2's sizes, sees only the past, and reads GPT-2's files."""

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rankscope.auditing.embedded import embedded_model
from rankscope.errors import SizeError
from rankscope.networks import Block, SmallGPT, from_gpt2, to_gpt2


def small() -> SmallGPT:
    return SmallGPT(11, num_positions=9, width=12, num_layers=2, num_heads=3)


@pytest.mark.parametrize(
    ("width", "num_layers", "parameters"),
    [(768, 12, 124_439_808), (1024, 24, 354_823_168), (1280, 36, 774_030_080)],
)
def test_the_number_of_parameters_is_that_of_gpt2(
    width: int, num_layers: int, parameters: int
) -> None:
    """Hugging Face's gpt2, gpt2-medium and gpt2-large, whose head is tied."""
    with torch.device("meta"):
        model = SmallGPT(
            50257, num_positions=1024, width=width, num_layers=num_layers, num_heads=width // 64
        )
    assert sum(weight.numel() for weight in model.parameters()) == parameters


def test_no_token_sees_what_comes_after_it() -> None:
    model = small()
    tokens = torch.randint(11, (2, 9))
    changed = tokens.clone()
    changed[:, 5] = (tokens[:, 5] + 1) % 11
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert (before[:, 5:] - after[:, 5:]).abs().amax(dim=2).min() > 0


def test_a_block_read_from_gpt2_computes_what_pytorch_computes(generator: torch.Generator) -> None:
    width = 12
    maps = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (inputs, outputs) in maps.items():  # stored as (inputs, outputs)
        shapes[f"{name}.weight"] = (inputs * width, outputs * width)
        shapes[f"{name}.bias"] = (outputs * width,)
    shapes |= {f"ln_{k}.{kind}": (width,) for k in (1, 2) for kind in ("weight", "bias")}
    file = {
        f"h.0.{name}": torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }
    block = Block(width, 3).double()
    block.load_state_dict({n.removeprefix("blocks.0."): t for n, t in from_gpt2(file).items()})
    twin = nn.TransformerEncoderLayer(
        width, 3, 48, dropout=0.0, activation=nn.GELU("tanh"), batch_first=True, norm_first=True
    ).double()
    names = {
        "attn.c_attn.": "self_attn.in_proj_",
        "attn.c_proj.": "self_attn.out_proj.",
        "mlp.c_fc.": "linear1.",
        "mlp.c_proj.": "linear2.",
        "ln_1.": "norm1.",
        "ln_2.": "norm2.",
    }
    theirs: dict[str, Tensor] = {}
    for old, new in names.items():
        theirs[f"{new}weight"] = file[f"h.0.{old}weight"].t()
        theirs[f"{new}bias"] = file[f"h.0.{old}bias"]
    twin.load_state_dict(theirs)
    tokens = torch.randn(2, 5, width, dtype=torch.float64, generator=generator)
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    torch.testing.assert_close(block(tokens), twin(tokens, src_mask=mask, is_causal=True))


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_every_tensor_of_a_gpt2_file_has_a_place_and_goes_back_to_it(prefix: str) -> None:
    file = load_file(embedded_model("transformer") / "model.safetensors")
    tensors: dict[str, Tensor] = {f"{prefix}{name}": tensor for name, tensor in file.items()}
    tensors |= {
        "lm_head.weight": file["wte.weight"],
        f"{prefix}h.0.attn.bias": torch.ones(1, 1, 9, 9),
        f"{prefix}h.0.attn.masked_bias": torch.tensor(-1e4),
    }
    vocabulary, width = file["wte.weight"].shape
    model = SmallGPT(vocabulary, num_positions=64, width=width, num_layers=4, num_heads=4)
    model.load_state_dict(from_gpt2(tensors))
    again = to_gpt2(model.state_dict())
    assert set(again) == set(file)
    assert all(torch.equal(again[name], file[name]) for name in file)


def test_tensors_under_our_own_names_stay_as_they_are() -> None:
    state = small().state_dict()
    again = from_gpt2(state)
    assert list(again) == list(state)
    assert all(again[name] is state[name] for name in state)


@pytest.mark.parametrize("num_heads", [5, 0])
def test_heads_that_do_not_share_the_width_are_refused(num_heads: int) -> None:
    with pytest.raises(SizeError, match=f"{num_heads} heads cannot share a width of 12 evenly"):
        SmallGPT(11, num_positions=9, width=12, num_layers=1, num_heads=num_heads)
