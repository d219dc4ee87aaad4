"""A small GPT has GPT-2's sizes, sees only the past, and reads GPT-2's files."""

import pytest
import torch
from torch import Tensor

from rankscope.architectures.models.catalogue import build
from rankscope.architectures.models.small_gpt import SmallGPT, from_gpt2
from rankscope.auditing.embedded.language_model import LanguageModel, trained_language_model
from rankscope.errors import SizeError


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


def test_the_embedded_transformer_is_the_same_function_as_its_own_module() -> None:
    tokens = torch.arange(128).reshape(2, 64)
    with torch.no_grad():
        torch.testing.assert_close(build("transformer")(tokens), trained_language_model()(tokens))


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_every_tensor_of_a_gpt2_file_has_a_place(prefix: str) -> None:
    sizes = {"n_embd": 12, "n_head": 3, "vocab_size": 11, "n_positions": 9, "n_layer": 2}
    theirs = LanguageModel(sizes)
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight)
    tensors: dict[str, Tensor] = {f"{prefix}{n}": t for n, t in theirs.state_dict().items()}
    tensors |= {
        "lm_head.weight": theirs.wte.weight,
        f"{prefix}h.0.attn.bias": torch.ones(1, 1, 9, 9),
        f"{prefix}h.0.attn.masked_bias": torch.tensor(-1e4),
    }
    ours = small()
    ours.load_state_dict(from_gpt2(tensors))
    tokens = torch.randint(11, (2, 9))
    torch.testing.assert_close(ours(tokens), theirs(tokens))


def test_tensors_under_our_own_names_stay_as_they_are() -> None:
    state = small().state_dict()
    again = from_gpt2(state)
    assert list(again) == list(state)
    assert all(again[name] is state[name] for name in state)


@pytest.mark.parametrize("num_heads", [5, 0])
def test_heads_that_do_not_share_the_width_are_refused(num_heads: int) -> None:
    with pytest.raises(SizeError, match=f"{num_heads} heads cannot share a width of 12 evenly"):
        SmallGPT(11, num_positions=9, width=12, num_layers=1, num_heads=num_heads)
