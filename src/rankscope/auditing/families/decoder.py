"""A stack of blocks between an embedding and an output matrix, under any names."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part, norm, table


@dataclass(frozen=True)
class Frame:
    """What surrounds attention and feed-forward maps; the defaults are those of LLaMA.

    Args:
        is_tied: whether the output matrix is the embedding once more.
        norms: those of one block.
        has_norm_bias: whether normalizations shift too.
        has_head_bias: whether the output matrix has a bias.
        embedding: name of the token embedding.
        blocks: name of the list of blocks.
        final_norm: name of the normalization after the last block.
        head: name of the output matrix.
        positions: name and number of learned positions, or None.
    """

    is_tied: bool
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    has_norm_bias: bool = False
    has_head_bias: bool = False
    embedding: str = "model.embed_tokens"
    blocks: str = "model.layers"
    final_norm: str = "model.norm"
    head: str = "lm_head"
    positions: tuple[str, int] | None = None


def decoder(
    sizes: Configuration,
    frame: Frame,
    block: Callable[[str, int], Iterator[ExpectedTensor]],
) -> Iterator[ExpectedTensor]:
    """All tensors, in the order in which they are used.

    Args:
        sizes: of the model; its vocabulary must be known.
        frame: names and kinds of what surrounds the blocks' maps.
        block: attention and feed-forward tensors of a block, from its name and number.
    """
    vocabulary = sizes.vocabulary
    assert vocabulary is not None, "the catalogue requires vocab_size of every decoder"
    yield table(frame.embedding, vocabulary, sizes.width)
    if frame.positions is not None:
        yield table(*frame.positions, sizes.width)
    for number in range(sizes.depth):
        name = f"{frame.blocks}.{number}"
        for one in frame.norms:
            yield from norm(f"{name}.{one}", sizes.width, bias=frame.has_norm_bias)
        yield from block(name, number)
    yield from norm(frame.final_norm, sizes.width, bias=frame.has_norm_bias)
    shape = (vocabulary, sizes.width)
    yield ExpectedTensor(f"{frame.head}.weight", shape, Part.HEAD, is_tied=frame.is_tied)
    if frame.has_head_bias:
        yield ExpectedTensor(f"{frame.head}.bias", (vocabulary,), Part.HEAD)
