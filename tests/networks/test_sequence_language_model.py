import pytest
import torch
from torch import nn

from rankscope.diagrams import module_arrays, to_module
from rankscope.errors import SizeError
from rankscope.networks import (
    AttentionForm,
    CPForm,
    LanguageModel,
    MultiHead,
    Places,
    SoftmaxFree,
    TransformerShape,
    TunableCore,
)
from rankscope.reading import from_module

FORMS = (MultiHead(2, 3), SoftmaxFree(2, 3), TunableCore(2, 3), CPForm(6), CPForm(2))


def model(form: AttentionForm, rank: int | None = None) -> LanguageModel:
    torch.manual_seed(0)
    own = LanguageModel(7, TransformerShape(2, 8, form, num_positions=6, embedding_rank=rank))
    for parameter in own.parameters():
        nn.init.normal_(parameter, std=0.5)
    return own.double().eval()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_token_changes_nothing_before_it(form: AttentionForm) -> None:
    own = model(form)
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    changed = torch.tensor([[1, 2, 3, 0, 5, 6]])
    before, after = own(tokens), own(changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_matrices_of_blocks_are_counted(form: AttentionForm) -> None:
    own = model(form)
    names = ("query", "key", "value", "out", "widen", "narrow")
    matrices = [
        weight
        for name, weight in own.named_parameters()
        if name.startswith("blocks") and weight.dim() == 2 and name.split(".")[-2] in names
    ]
    assert own.shape.squares == sum(weight.numel() for weight in matrices)


def test_a_tunable_core_starts_as_its_heads() -> None:
    heads, tunable = (
        LanguageModel(7, TransformerShape(1, 8, form, num_positions=6))
        for form in (MultiHead(2, 3), TunableCore(2, 3))
    )
    missing = tunable.load_state_dict(heads.state_dict(), strict=False)
    assert missing.missing_keys == ["blocks.0.attention.core.entries"]
    tokens = torch.randint(7, (2, 6))
    torch.testing.assert_close(tunable(tokens), heads(tokens))


def test_inputs_of_embedding_rank_r_span_r_dimensions() -> None:
    own = model(MultiHead(2, 3), rank=3)
    assert isinstance(own.embedding.places, Places)
    vectors = own.embedding(torch.randint(7, (40, 6))).flatten(0, 1)
    assert torch.linalg.matrix_rank(vectors) == 3


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_form_is_read_as_a_network_that_computes_the_same(form: AttentionForm) -> None:
    own = model(form, rank=3)
    tokens = torch.randint(7, (2, 5))
    drawn = to_module(from_module(own, (2, 5)), module_arrays(own))
    torch.testing.assert_close(drawn(tokens), own(tokens))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SizeError, match="7 tokens do not fit into 6 positions"):
        model(CPForm(2))(torch.zeros(1, 7, dtype=torch.long))
    with pytest.raises(SizeError, match="depth must be at least 1, got 0"):
        TransformerShape(0, 8, CPForm(2), num_positions=6)
    with pytest.raises(SizeError, match="at least 1 channel, got 0"):
        TransformerShape(1, 8, CPForm(0), num_positions=6)
    with pytest.raises(SizeError, match=r"must lie in 1\.\.8, the width; got 9"):
        TransformerShape(1, 8, CPForm(2), num_positions=6, embedding_rank=9)
