import pytest
import torch
from torch import nn

from rankscope.errors import SizeError
from rankscope.networks import (
    AttentionForm,
    CPForm,
    MultiHead,
    TransformerShape,
    TranslationModel,
    TunableCore,
)

FORMS = (MultiHead(2, 4), TunableCore(2, 4), CPForm(4))
START, END = 2, 3


def model(form: AttentionForm) -> TranslationModel:
    torch.manual_seed(0)
    own = TranslationModel(9, 11, TransformerShape(2, 8, form, num_positions=6))
    for parameter in own.parameters():
        nn.init.normal_(parameter, std=0.5)
    return own.double().eval()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_padding_of_the_source_changes_nothing(form: AttentionForm) -> None:
    own = model(form)
    source, target = torch.tensor([[4, 5, 6]]), torch.tensor([[2, 7, 8]])
    padded = torch.tensor([[4, 5, 6, 0, 0]])
    torch.testing.assert_close(own(padded, target), own(source, target))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_source_word_matters_and_later_target_words_do_not(form: AttentionForm) -> None:
    own = model(form)
    source, target = torch.tensor([[4, 5, 6]]), torch.tensor([[2, 7, 8]])
    wanted = own(source, target)
    for place in range(3):
        changed = source.clone()
        changed[0, place] = 1
        assert not torch.allclose(own(changed, target)[:, 0], wanted[:, 0])
    later = torch.tensor([[2, 7, 1]])
    torch.testing.assert_close(own(source, later)[:, :2], wanted[:, :2])


def test_the_most_likely_word_is_written_again_and_again() -> None:
    own = model(MultiHead(2, 4))
    source = torch.tensor([[4, 5, 6], [7, 8, 0]])
    written = own.translate(source, begin=START, end=END, max_words=5)
    for row, words in enumerate(written.tolist()):
        context = [START]
        for word in words:
            if END in context:
                assert word == 0
                continue
            logits = own(source[row : row + 1], torch.tensor([context]))
            assert word == int(logits[0, -1].argmax())
            context.append(word)


def test_writing_stops_when_all_sentences_are_over() -> None:
    own = model(MultiHead(2, 4))
    nn.init.zeros_(own.head.weight)
    own.head.bias.data = torch.eye(11, dtype=torch.float64)[END]
    written = own.translate(torch.tensor([[4], [5]]), begin=START, end=END, max_words=5)
    assert written.tolist() == [[END], [END]]


def test_sentences_that_are_too_long_are_refused() -> None:
    own = model(CPForm(4))
    with pytest.raises(SizeError, match="7 words does not fit into 6 positions"):
        own(torch.ones(1, 7, dtype=torch.long), torch.ones(1, 2, dtype=torch.long))
    with pytest.raises(SizeError, match="8 words does not fit into 6 positions"):
        own(torch.ones(1, 2, dtype=torch.long), torch.ones(1, 8, dtype=torch.long))
