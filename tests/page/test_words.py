from dataclasses import replace

from rankscope.auditing import Audit
from rankscope.page.words import count_in_words, model_sentence, percent


def test_small_shares_keep_a_digit() -> None:
    assert [percent(share) for share in (0.0, 1.0, 0.00051)] == ["0.0 %", "100.0 %", "0.05 %"]


def test_counts_are_spoken_in_their_scale() -> None:
    spoken = [count_in_words(count) for count in (999_999, 1_000_000, 2 * 10**9, 3 * 10**12)]
    assert spoken == ["999,999", "1 million", "2 billion", "3 trillion"]


def test_the_sentence_names_every_size(transformer: Audit) -> None:
    assert model_sentence(transformer) == (
        "A transformer of the llama family: 6 blocks on vectors of width 48, each with 4 attention "
        "heads of size 12 and a feed-forward part of inner size 192. It knows 160 tokens. "
        "The weights hold 26 tensors."
    )


def test_the_sentence_says_what_is_special(shape_only: Audit) -> None:
    assert shape_only.configuration is not None
    special = replace(
        shape_only.configuration,
        encoder_depth=6,
        decoder_depth=5,
        key_value_heads=2,
        num_experts=8,
        vocabulary=None,
    )
    sentence = model_sentence(replace(shape_only, configuration=special))
    assert "6 blocks that read and 5 that write" in sentence
    assert "share keys and values in 2 groups" in sentence
    assert "8 feed-forward experts of inner size 192" in sentence
    assert "It reads images." in sentence


def test_weights_alone_say_that_they_are_alone(convolutional: Audit) -> None:
    sentence = "4 tensors; nothing says how they are connected."
    assert model_sentence(convolutional) == sentence
