"""The encoder is BERT: its sizes, its names, its function."""

import pytest
import torch
from torch import Tensor, nn

from rankscope.errors import SizeError
from rankscope.networks import MINILM, Encoder, EncoderSizes, Layer, mean_of_tokens

SMALL = EncoderSizes(
    vocabulary=20, width=12, num_layers=2, num_heads=3, inner_width=16, num_positions=10
)


@pytest.mark.parametrize(
    ("sizes", "parameters"),
    [
        (EncoderSizes(), 109_482_240),
        (EncoderSizes(width=1024, num_layers=24, num_heads=16, inner_width=4096), 335_141_888),
        (MINILM, 22_713_216),
    ],
)
def test_the_number_of_parameters_is_the_published_one(
    sizes: EncoderSizes, parameters: int
) -> None:
    """Hugging Face's BertModel of bert-base-uncased, bert-large-uncased and all-MiniLM-L6-v2."""
    with torch.device("meta"):
        model = Encoder(sizes)
    assert sum(weight.numel() for weight in model.parameters()) == parameters


def test_names_are_those_of_hugging_face() -> None:
    with torch.device("meta"):
        names = Encoder(MINILM).state_dict().keys()
    embeddings = {
        f"embeddings.{part}.weight"
        for part in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    } | {"embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"}
    parts = (
        *("attention.self.query", "attention.self.key", "attention.self.value"),
        *("attention.output.dense", "attention.output.LayerNorm"),
        *("intermediate.dense", "output.dense", "output.LayerNorm"),
    )
    layers = {
        f"encoder.layer.{number}.{part}.{kind}"
        for number in range(6)
        for part in parts
        for kind in ("weight", "bias")
    }
    assert names == embeddings | layers | {"pooler.dense.weight", "pooler.dense.bias"}


def as_torch_layer(layer: Layer, sizes: EncoderSizes) -> nn.TransformerEncoderLayer:
    """The same weights in PyTorch's own layer."""
    theirs = nn.TransformerEncoderLayer(
        sizes.width,
        sizes.num_heads,
        sizes.inner_width,
        activation="gelu",
        layer_norm_eps=1e-12,
        batch_first=True,
    )
    ours = layer.state_dict()
    state = {}
    for kind in ("weight", "bias"):
        joined = [ours[f"attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
        state[f"self_attn.in_proj_{kind}"] = torch.cat(joined)
        state[f"self_attn.out_proj.{kind}"] = ours[f"attention.output.dense.{kind}"]
        state[f"norm1.{kind}"] = ours[f"attention.output.LayerNorm.{kind}"]
        state[f"linear1.{kind}"] = ours[f"intermediate.dense.{kind}"]
        state[f"linear2.{kind}"] = ours[f"output.dense.{kind}"]
        state[f"norm2.{kind}"] = ours[f"output.LayerNorm.{kind}"]
    theirs.load_state_dict(state)
    return theirs.eval()


def test_a_layer_is_pytorchs_encoder_layer() -> None:
    layer = Layer(SMALL)
    for weight in layer.parameters():
        nn.init.normal_(weight)
    states = torch.randn(2, 5, 12)
    is_token = torch.tensor([[True] * 5, [True, True, True, False, False]])
    theirs = as_torch_layer(layer, SMALL)
    with torch.no_grad():
        expected = theirs(states, src_key_padding_mask=~is_token)
        found = layer(states, is_token)
    # PyTorch may leave out what is padding, so only tokens are compared.
    torch.testing.assert_close(found[is_token], expected[is_token], rtol=1e-4, atol=1e-4)


def test_padding_changes_nothing() -> None:
    model = Encoder(SMALL)
    tokens = torch.randint(1, 20, (3, 6))
    padded = nn.functional.pad(tokens, (0, 4))
    short, long = model(tokens), model(padded)
    torch.testing.assert_close(long[:, :6], short)
    torch.testing.assert_close(mean_of_tokens(long, padded), mean_of_tokens(short, tokens))


def test_a_sentence_vector_is_the_mean_over_its_own_tokens() -> None:
    states = torch.randn(2, 4, 3)
    found = mean_of_tokens(states, torch.tensor([[5, 6, 0, 0], [1, 2, 3, 4]]))
    torch.testing.assert_close(found[0], (states[0, 0] + states[0, 1]) / 2)
    torch.testing.assert_close(found[1], states[1].mean(dim=0))


def test_words_and_their_places_both_matter() -> None:
    model = Encoder(SMALL)
    tokens = torch.tensor([[3, 4, 5], [4, 3, 5]])
    states: Tensor = model(tokens)
    assert (states[0, 2] - states[1, 2]).abs().max() > 1e-3
    assert model.pool(states).shape == (2, 12)
    torch.testing.assert_close(
        model.pool(states), torch.tanh(model.pooler["dense"](states[:, 0, :]))
    )


@pytest.mark.parametrize("num_heads", [7, 0])
def test_heads_that_do_not_share_the_width_are_refused(num_heads: int) -> None:
    with pytest.raises(SizeError, match=f"{num_heads} heads cannot share a width of 768 evenly"):
        EncoderSizes(num_heads=num_heads)
