"""Expected tensors against real modules that run."""

from collections.abc import Mapping

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from rankscope.auditing import expected_tensors, read_configuration


def document(
    family: str, width: int, depth: int, heads: int, inner: int, **more: object
) -> dict[str, object]:
    return {
        "model_type": family,
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": 11,
        "max_position_embeddings": 6,
        **more,
    }


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class Gated(nn.Module):
    """LLaMA's three maps."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        gate = functional.silu(self.gate_proj(inputs))
        output: Tensor = self.down_proj(gate * self.up_proj(inputs))
        return output


class Grouped(nn.Module):
    """Attention in which several heads share keys and values."""

    def __init__(self, width: int, heads: int, groups: int, head_size: int) -> None:
        super().__init__()
        self.shape = (-1, heads, head_size), (-1, groups, head_size)
        self.q_proj = nn.Linear(width, heads * head_size, bias=False)
        self.k_proj = nn.Linear(width, groups * head_size, bias=False)
        self.v_proj = nn.Linear(width, groups * head_size, bias=False)
        self.o_proj = nn.Linear(heads * head_size, width, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        every, shared = self.shape
        attended = functional.scaled_dot_product_attention(
            self.q_proj(inputs).reshape(every).transpose(0, 1),
            self.k_proj(inputs).reshape(shared).transpose(0, 1),
            self.v_proj(inputs).reshape(shared).transpose(0, 1),
            enable_gqa=True,
        )
        output: Tensor = self.o_proj(attended.transpose(0, 1).flatten(1))
        return output


class Block(nn.Module):
    """One block, with residuals."""

    def __init__(self, attention: Grouped, maps: Gated, width: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(width)
        self.self_attn = attention
        self.post_attention_layernorm = nn.RMSNorm(width)
        self.mlp = maps

    def forward(self, inputs: Tensor) -> Tensor:
        state = inputs + self.self_attn(self.input_layernorm(inputs))
        output: Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return output


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 7))
def test_a_llama_that_runs_has_exactly_the_expected_tensors(
    groups: int, share: int, head_size: int, width: int
) -> None:
    heads, inner = groups * share, 9
    model = nn.ModuleDict(
        {
            "embed_tokens": nn.Embedding(11, width),
            "layers": nn.ModuleList(
                Block(Grouped(width, heads, groups, head_size), Gated(width, inner), width)
                for _ in range(2)
            ),
            "norm": nn.RMSNorm(width),
        }
    )
    state = model["embed_tokens"](torch.tensor([1, 5, 9]))
    for number in range(2):
        state = model["layers"].get_submodule(str(number))(state)
    assert model["norm"](state).shape == (3, width)
    actual: Mapping[str, Tensor] = model.state_dict()
    more = {"num_key_value_heads": groups, "head_dim": head_size, "tie_word_embeddings": True}
    expected = expected_tensors(document("llama", width, 2, heads, inner, **more))
    assert {one.name: one.shape for one in expected if not one.is_tied} == {
        f"model.{name}": tuple(tensor.shape) for name, tensor in actual.items()
    }


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(1, 3))
def test_encoders_have_as_many_parameters_as_those_of_pytorch(
    heads: int, head_size: int, inner: int, depth: int
) -> None:
    """BERT's, DistilBERT's and ViT's blocks are PyTorch's encoder layers, and so are GPT-2's."""
    width = heads * head_size
    layer = nn.TransformerEncoderLayer(width, heads, inner)
    blocks = depth * num_parameters(layer)
    embeddings = 11 * width + 6 * width
    more: dict[str, dict[str, object]] = {
        "gpt2": {"n_inner": inner},
        "gpt": {},
        "distilbert": {},
        "bert": {"type_vocab_size": 3},
        "vit": {"image_size": 7, "patch_size": 2},
    }
    # Final or first normalization; BERT's types and pooler; ViT's 9 patches and class token.
    rest = {
        "gpt2": embeddings + 2 * width,
        "gpt": embeddings + 2 * width,
        "distilbert": embeddings + 2 * width,
        "bert": embeddings + 2 * width + 3 * width + width**2 + width,
        "vit": 11 * width + num_parameters(nn.Conv2d(3, width, 2)) + 2 * width,
    }
    for family, count in rest.items():
        read = read_configuration(
            document(family, width, depth, heads, inner, **more[family]), who=family
        )
        assert read.parameters.total == blocks + count, family
        attention = num_parameters(nn.MultiheadAttention(width, heads))
        assert read.parameters.attention == depth * attention, family
