"""Letters to phonemes is the function that g2p_en computes, word by word."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.networks import LETTERS, PHONEMES, LetterToPhoneme, from_g2p_en, read_phonemes, spell

WORDS = st.lists(st.text("abcdexyz'", max_size=9), min_size=1, max_size=4)


def g2p_en_arrays(width: int) -> dict[str, Tensor]:
    """Random arrays with the names and shapes of checkpoint20.npz."""
    arrays = {"enc_emb": torch.randn(len(LETTERS), width)}
    arrays |= {"dec_emb": torch.randn(len(PHONEMES), width)}
    arrays |= {"fc_w": torch.randn(len(PHONEMES), width), "fc_b": torch.randn(len(PHONEMES))}
    for side in ("enc", "dec"):
        for kind in ("ih", "hh"):
            arrays[f"{side}_w_{kind}"] = torch.randn(3 * width, width)
            arrays[f"{side}_b_{kind}"] = torch.randn(3 * width)
    return arrays


def step(arrays: dict[str, Tensor], side: str, inputs: Tensor, state: Tensor) -> Tensor:
    """One step of a GRU, by its equations (Cho et al. 2014, arXiv:1406.1078, as PyTorch's)."""
    given = arrays[f"{side}_w_ih"] @ inputs + arrays[f"{side}_b_ih"]
    kept = arrays[f"{side}_w_hh"] @ state + arrays[f"{side}_b_hh"]
    reset_in, update_in, new_in = given.chunk(3)
    reset_state, update_state, new_state = kept.chunk(3)
    reset, update = (reset_in + reset_state).sigmoid(), (update_in + update_state).sigmoid()
    return (1 - update) * (new_in + reset * new_state).tanh() + update * state


def spoken_by_hand(arrays: dict[str, Tensor], word: str, num_steps: int) -> tuple[str, ...]:
    state = torch.zeros_like(arrays["fc_w"][0])
    numbers = [LETTERS.index(letter) if letter in LETTERS else 1 for letter in word]
    for number in [*numbers, 2]:
        state = step(arrays, "enc", arrays["enc_emb"][number], state)
    found, number = [], 2
    for _ in range(num_steps):
        state = step(arrays, "dec", arrays["dec_emb"][number], state)
        number = int((arrays["fc_w"] @ state + arrays["fc_b"]).argmax())
        if number == 3:
            break
        found.append(PHONEMES[number])
    return tuple(found)


def test_there_are_as_many_symbols_as_in_the_published_arrays() -> None:
    assert (len(LETTERS), len(PHONEMES)) == (29, 74)
    assert len(set(PHONEMES)) == 74
    assert list(PHONEMES[4:]) == sorted(PHONEMES[4:])


@settings(deadline=None, max_examples=25)
@given(words=WORDS, seed=st.integers(0, 2**16))
def test_words_are_spoken_as_by_the_equations_one_by_one(words: list[str], seed: int) -> None:
    torch.manual_seed(seed)
    arrays = {name: array.double() for name, array in g2p_en_arrays(8).items()}
    model = LetterToPhoneme(width=8, num_steps=6).double()
    model.load_state_dict(from_g2p_en(arrays))
    expected = [spoken_by_hand(arrays, word, 6) for word in words]
    assert read_phonemes(model(spell(words))) == expected


def test_given_its_own_phonemes_it_says_the_same() -> None:
    model = LetterToPhoneme(width=8, num_steps=5)
    letters = spell(["abc", "de"])
    logits = model(letters)
    torch.testing.assert_close(model(letters, logits.argmax(dim=2)), logits)
    other = (logits.argmax(dim=2) + 1) % len(PHONEMES)
    forced = model(letters, other)
    torch.testing.assert_close(forced[:, :1], logits[:, :1])
    assert (forced[:, 1:] - logits[:, 1:]).abs().max() > 1e-3


def test_a_word_that_never_ends_is_cut_off() -> None:
    model = LetterToPhoneme(width=4, num_steps=3)
    torch.nn.init.zeros_(model.head.weight)
    with torch.no_grad():
        model.head.bias[PHONEMES.index("AA1")] = 99.0
    assert read_phonemes(model(spell(["a"]))) == [("AA1",) * 3]


def test_names_of_our_own_stay_as_they_are() -> None:
    state = LetterToPhoneme(width=4).state_dict()
    assert from_g2p_en(state).keys() == state.keys()
