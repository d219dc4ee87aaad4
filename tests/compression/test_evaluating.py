"""`evaluate`: perplexity by its definition, comparison with the dense model, memory and cache."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.compression import (
    Evaluation,
    Inputs,
    Labelled,
    Text,
    evaluate,
    inference_bytes,
    training_bytes,
)
from rankscope.errors import CompressionError, RequestError

VOCABULARY = 7


class RunningMean(nn.Module):
    """A language model that sees the mean of all tokens up to each place, or of all tokens."""

    def __init__(self, *, is_causal: bool = True, num_positions: int = 64) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 5)
        self.head = nn.Linear(5, VOCABULARY)
        self.is_causal, self.num_positions = is_causal, num_positions

    def forward(self, tokens: Tensor) -> Tensor:
        vectors: Tensor = self.table(tokens)
        if self.is_causal:
            counts = torch.arange(1, tokens.shape[1] + 1)[:, None]
            vectors = vectors.cumsum(1) / counts
        else:
            vectors = vectors.mean(1, keepdim=True).expand_as(vectors)
        logits: Tensor = self.head(vectors)
        return logits


@pytest.fixture(scope="module")
def models() -> tuple[RunningMean, RunningMean]:
    torch.manual_seed(0)
    return RunningMean(), RunningMean()


def tokens(count: int) -> Tensor:
    return torch.arange(count) ** 2 % VOCABULARY


@settings(max_examples=15, deadline=None)
@given(count=st.integers(2, 40), context=st.integers(2, 12), share=st.floats(0, 1))
def test_perplexity_is_that_of_each_token_after_those_before_it_in_its_window(
    models: tuple[RunningMean, RunningMean], count: int, context: int, share: float
) -> None:
    model, text = models[0], tokens(count)
    stride = max(1, round(share * context))
    evaluation = evaluate(model, Text(text, context, stride), repeats=1)
    losses = []
    with torch.no_grad():
        for place in range(1, count):
            # The first window that holds the token and one before it.
            starts = [s for s in range(0, count, stride) if s < place < s + context]
            if starts:
                seen = text[starts[0] : place][None]
                losses.append(-model(seen)[0, -1].double().log_softmax(-1)[text[place]])
    assert (evaluation.tokens, evaluation.stride) == (count, stride)
    assert evaluation.context == min(context, count)
    assert evaluation.predicted == len(losses)
    wanted = math.exp(sum(map(float, losses)) / len(losses))
    assert evaluation.model.perplexity == pytest.approx(wanted, rel=1e-5)
    if stride < context:
        assert evaluation.predicted == count - 1


def test_the_comparison_follows_its_definition(models: tuple[RunningMean, RunningMean]) -> None:
    model, dense = models
    text = tokens(10)
    evaluation = evaluate(model, Text(text, 10), dense=dense, repeats=1)
    with torch.no_grad():
        ours, theirs = (one(text[None])[0, :-1].double().log_softmax(-1) for one in models)
    divergence = (theirs.exp() * (theirs - ours)).sum(-1).mean()
    assert evaluation.divergence == pytest.approx(float(divergence), rel=1e-5)
    same = (ours.argmax(-1) == theirs.argmax(-1)).double().mean()
    assert evaluation.agreement == pytest.approx(float(same))
    assert evaluation.dense is not None
    alone = evaluate(dense, Text(text, 10), repeats=1)
    assert evaluation.dense.perplexity == alone.model.perplexity
    itself = evaluate(dense, Text(text, 10), dense=dense, repeats=1)
    assert (itself.divergence, itself.agreement) == (0.0, 1.0)


def test_a_model_that_sees_later_tokens_has_no_perplexity() -> None:
    torch.manual_seed(0)
    model = RunningMean(is_causal=False)
    evaluation = evaluate(model, Text(tokens(12)), dense=model, repeats=1)
    assert evaluation.model.perplexity is None
    assert "depend on later tokens" in evaluation.notes[0]
    assert evaluation.output_error == 0.0


def test_accuracy_and_plain_data() -> None:
    layer = nn.Linear(4, 4, bias=False)
    nn.init.eye_(layer.weight)
    samples = Labelled(torch.eye(4), torch.tensor([0, 1, 2, 0]))
    evaluation = evaluate(layer, samples, dense=layer, repeats=1)
    assert isinstance(evaluation, Evaluation)
    document = evaluation.to_dict()
    assert document["accuracy"] == 0.75
    assert document["perplexity"] is None
    assert document["tokens"] is None
    assert document["parameters"] == 16
    assert document["bytes"] == 64
    assert document["samples"] == 4
    named = Labelled({"input": torch.eye(4)}, torch.tensor([0, 1, 2, 0]))
    assert evaluate(layer, named, repeats=1).model.accuracy == 0.75
    double = nn.Linear(4, 4, bias=False)
    double.weight.data = 2 * torch.eye(4)
    halves = evaluate(layer, Inputs(torch.eye(4).repeat(20, 1)), dense=double, repeats=1)
    assert halves.samples == 80
    assert halves.output_error == pytest.approx(1 / 4)


def test_what_does_not_fit_is_refused(models: tuple[RunningMean, RunningMean]) -> None:
    model, _ = models
    with pytest.raises(RequestError, match="wanted at least 2 tokens in a row, got 1 "):
        Text(tokens(1))
    with pytest.raises(RequestError, match="context of at least 2 tokens, got 1"):
        Text(tokens(9), context=1)
    with pytest.raises(
        RequestError, match="context of 65 was asked for, but the model has only 64"
    ):
        evaluate(model, Text(tokens(90), context=65))
    with pytest.raises(RequestError, match="stride from 1 to the context 4, got 5"):
        evaluate(model, Text(tokens(9), context=4, stride=5))
    with pytest.raises(RequestError, match="at least 1 repeat, got 0"):
        evaluate(model, Text(tokens(9)), repeats=0)
    with pytest.raises(RequestError, match=r"each of at least 1 sample, got 2 samples and .*3,"):
        Labelled(torch.eye(2), torch.zeros(3))
    with pytest.raises(RequestError, match="at least 1 sample each, got 0"):
        Inputs(torch.zeros(0, 2))
    samples = Labelled(torch.eye(4), torch.tensor([0, 1, 2, 9]))
    with pytest.raises(RequestError, match=r"labels 0 to 9 of 4 places .* shape \(4, 4\)"):
        evaluate(nn.Linear(4, 4), samples)
    with pytest.raises(RequestError, match=r"gives 4 classes .* but the dense one 3"):
        evaluate(nn.Linear(4, 4), Inputs(torch.eye(4)), dense=nn.Linear(4, 3))
    broken = nn.Linear(4, 4)
    nn.init.constant_(broken.bias, math.nan)
    with pytest.raises(CompressionError, match="gives 16 NaN or infinite numbers of 16"):
        evaluate(broken, Inputs(torch.eye(4)))


@settings(max_examples=10, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=5), batch=st.integers(1, 4))
def test_activations_of_a_row_of_layers(sizes: list[int], batch: int) -> None:
    layers = [nn.Linear(one, other) for one, other in pairwise(sizes)]
    model = nn.Sequential(*layers)
    inputs = torch.ones(batch, sizes[0])
    # A layer's result lives beside the result it is made from; the first is made from the inputs.
    pairs = [one + other for one, other in pairwise(sizes[1:])]
    assert inference_bytes(model, inputs) == 4 * batch * max([sizes[1], *pairs])
    kept = 4 * batch * sum(sizes[1:])  # every result is needed for a gradient
    assert training_bytes(model, inputs, lambda output: output.square().sum()) >= kept


def test_a_training_step_leaves_the_model_as_it_was() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout()).eval()
    model[0].weight.requires_grad = False
    model[0].bias.grad = torch.ones(4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    training_bytes(model, torch.randn(5, 3), lambda output: output.sum())
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert not model.training
    assert not model[0].weight.requires_grad
    assert model[0].weight.grad is None
    assert torch.equal(model[0].bias.grad, torch.ones(4))


def test_a_step_that_cannot_be_done_is_noted() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    evaluation = evaluate(model, Inputs(torch.ones(1, 3)), repeats=1)
    assert evaluation.model.training_activation_bytes is None
    assert "more than 1 value per channel" in evaluation.notes[0]


@pytest.mark.slow
def test_models_that_read_the_whole_text_are_compared_without_a_perplexity() -> None:
    from rankscope.extras import transformers as load_transformers

    transformers = load_transformers()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=16, vocab_size=30)
    one, other = (transformers.BertForMaskedLM(config).eval() for _ in range(2))
    evaluation = evaluate(one, Text(torch.arange(20), 8), dense=other, repeats=1)
    assert evaluation.model.perplexity is None
    assert evaluation.model.cache_bytes_per_token is None
    with torch.no_grad():
        windows = [torch.arange(start, min(start + 8, 20))[None] for start in (0, 8, 16)]
        logits = [
            torch.cat([model(window).logits[0] for window in windows]).double().log_softmax(-1)
            for model in (one, other)
        ]
    divergence = (logits[1].exp() * (logits[1] - logits[0])).sum(-1).mean()
    assert evaluation.divergence == pytest.approx(float(divergence), rel=1e-3)
    assert evaluation.model.prefill_tokens_per_second is not None
