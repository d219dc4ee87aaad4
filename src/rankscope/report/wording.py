"""Numbers and sentences that a stranger understands."""

import math
from html import escape
from pathlib import PurePath

from rankscope.auditing.audit import Audit
from rankscope.auditing.configuration import Configuration

PART_NAMES = {
    "embedding": "Embedding",
    "attention": "Attention",
    "feed_forward": "Feed-forward",
    "normalization": "Normalization",
    "head": "Head",
    "other": "Other",
}
SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))


def readable(value: float | int) -> str:
    """A number with at most four digits that count, or all of them for an integer.

    Example:
        >>> readable(16384), readable(16384.0), readable(0.400612), readable(float("inf"))
        ('16,384', '16,384', '0.4006', 'not finite')
    """
    if not math.isfinite(value):
        return "not finite"
    is_written_out = value == round(value) or abs(value) >= 1000
    return f"{value:,.0f}" if is_written_out and abs(value) < 1e15 else f"{value:.4g}"


def percent(share: float) -> str:
    """A share as a percentage.

    Example:
        >>> percent(0.4006), percent(0.00004)
        ('40.1 %', '0.004 %')
    """
    return f"{100 * share:.1f} %" if share == 0 or share >= 0.001 else f"{100 * share:.1g} %"


def spoken_count(count: int) -> str:
    """A count as one would say it.

    Example:
        >>> spoken_count(11_307_321_344), spoken_count(260_032)
        ('11.31 billion', '260,032')
    """
    for scale, name in SCALES:
        if count >= scale:
            return f"{count / scale:.4g} {name}"
    return f"{count:,}"


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as it is written on paper.

    Example:
        >>> shape_text((768, 3072)), shape_text(())
        ('768 × 3,072', 'a number')
    """
    return " × ".join(f"{size:,}" for size in shape) or "a number"


def breakable(name: str) -> str:
    """A name as HTML that may break where a reader would.

    Example:
        >>> breakable("a.b_c<d")
        'a.<wbr>b_<wbr>c&lt;d'
    """
    return escape(name).replace(".", ".<wbr>").replace("_", "_<wbr>")


def model_name(audit: Audit) -> str:
    """The last part of where it was read from."""
    return PurePath(audit.source).name or audit.source


def model_sentence(audit: Audit) -> str:
    """What kind of model this is, in one or two sentences."""
    if audit.configuration is None:
        shape = f"{_tensors(len(audit.tensors))}; nothing says how they are connected."
    else:
        shape = _shape_sentence(audit.configuration)
        if audit.tensors:
            shape += f" The weights hold {_tensors(len(audit.tensors))}."
    return f"{shape[0].upper()}{shape[1:]}"


def _tensors(count: int) -> str:
    return f"{count:,} tensor{'' if count == 1 else 's'}"


def _shape_sentence(shape: Configuration) -> str:
    if shape.encoder_depth is not None and shape.decoder_depth is not None:
        blocks = f"{shape.encoder_depth} blocks that read and {shape.decoder_depth} that write"
    else:
        blocks = f"{shape.depth} block{'' if shape.depth == 1 else 's'}"
    heads = f"{shape.heads} attention heads of size {shape.head_size}"
    if shape.key_value_heads < shape.heads:
        heads += f" that share keys and values in {shape.key_value_heads} groups"
    inner = f"a feed-forward part of inner size {shape.feed_forward:,}"
    if shape.num_experts > 1:
        inner = f"{shape.num_experts} feed-forward experts of inner size {shape.feed_forward:,}"
    if shape.vocabulary is None:
        words = "It reads images."
    else:
        words = f"It knows {shape.vocabulary:,} tokens."
    return (
        f"a transformer of the {shape.family} family: {blocks} on vectors of width "
        f"{shape.width:,}, each with {heads} and {inner}. {words}"
    )
