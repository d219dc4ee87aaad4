import pytest

from rankscope.auditing import Configuration, Fields, read_sizes
from rankscope.errors import ConfigurationError

SIZES: dict[str, object] = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 30,
    "vocab_size": 100,
}


def read(
    *, feed_forward: int | None = None, head_size: int | None = None, **more: object
) -> Configuration:
    fields = Fields(SIZES | more, {}, "llama", "config.json")
    return read_sizes(fields, feed_forward=feed_forward, head_size=head_size)


def test_heads_divide_the_width_unless_their_size_is_given() -> None:
    assert read().head_size == 3
    assert read(num_attention_heads=5, head_dim=7).attention_width == 35
    assert read(num_attention_heads=5, head_size=256).head_size == 256
    with pytest.raises(ConfigurationError, match="5 heads do not divide the width 12"):
        read(num_attention_heads=5)


def test_groups_of_keys_and_values_divide_the_heads() -> None:
    assert read(num_key_value_heads=2).key_value_heads == 2
    assert read().key_value_heads == 4
    with pytest.raises(ConfigurationError, match="4 heads cannot share 3 keys and values"):
        read(num_key_value_heads=3)


def test_the_documents_inner_size_stands_before_the_familys() -> None:
    assert read(feed_forward=48).feed_forward == 30
    assert read(feed_forward=48, intermediate_size=None).feed_forward == 48


def test_the_rank_is_at_most_the_width_and_the_vocabulary() -> None:
    assert read().embedding_rank == 12
    assert read(vocab_size=5).embedding_rank == 5
    assert read(vocab_size=None).embedding_rank == 12
