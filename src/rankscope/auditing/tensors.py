"""What an audit says about the weights, one row for every tensor, and which part it belongs to.

Loads no torch.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class MatrixRow:
    """One matrix seen in a tensor, and its spectrum.

    Args:
        name: "" for the tensor itself; otherwise which part, such as "query", "head 3: query-key",
            "input gate" or "operator" (a convolution on an image, with its true singular values).
        shape: rows, columns; of an operator the size of its blocks.
        num_values: how many singular values there are.
        singular_values: descending; at most 256 of them, evenly spread, for pictures.
        largest: the largest one, the spectral norm.
        frobenius: root of the sum of all squares.
        numeric_rank: those above rounding.
        stable_rank: sum of squares over the largest square.
        effective_rank: exponential of the entropy of the squares' shares.
        entropy: of the shares of the squares, over the logarithm of their number, in 0..1.
        rank_at: how many hold 50, 90, 95 and 99 percent of the squares.
        random_edge: upper Marchenko-Pastur edge: the largest singular value of a random matrix of
            the same shape and size of entries (for the products of a head: of two such factors).
        outliers: how many singular values lie above that edge.
        random_distance: largest distance of the two cumulative distributions of singular values
            (Kolmogorov-Smirnov), 0 for a random matrix.
    """

    name: str
    shape: tuple[int, int]
    num_values: int
    singular_values: tuple[float, ...]
    largest: float
    frobenius: float
    numeric_rank: int
    stable_rank: float
    effective_rank: float
    entropy: float
    rank_at: dict[str, int]
    random_edge: float
    outliers: int
    random_distance: float

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class TensorRow:
    """One tensor of a model.

    Args:
        name: as in the file.
        part: embedding, attention, feed_forward, normalization, head or other.
        shape: its shape.
        dtype: such as "float32" or "bfloat16".
        matrices: what was seen in it; empty if there is a reason.
        reason: why it has no spectrum, such as "a vector", or None.
        same_as: the first tensor with the same content (tied or copied), or None.
        layer: number of the block it belongs to, or None.
    """

    name: str
    part: str
    shape: tuple[int, ...]
    dtype: str
    matrices: tuple[MatrixRow, ...] = field(default=())
    reason: str | None = None
    same_as: str | None = None
    layer: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)


OnRow = Callable[[TensorRow], None]


# --- Which part of a model a tensor belongs to, told by its name ----------------------------------

# Patterns for a whole word between dots. The first row that matches decides: a normalization may
# stand inside attention, and so may an embedding of relative positions.
_WORDS = {
    "head": r"""lm_head cls classifier pre_classifier score embed_out heads? fc_out output_layer
        qa_outputs vocab_\w+ generator to_logits mlm_head""",
    "normalization": r"\w*norm\w* ln ln\d+ ln_\w+ \w+_ln bn bn\d+",
    "attention": r"""\w*attn\w* \w*attention\w* query key value [qkvo]_proj (q|k|v|in)_proj_\w+
        query_key_value w?qkv w[qkv] to_(q|k|v|qkv|out)""",
    "feed_forward": r"""\w*mlp\w* \w*ffn\w* feed_?forward ff intermediate \w*experts? \w*moe router
        denserelu\w* densegated\w* dense_h_to_4h dense_4h_to_h fc[123] lin(ear)?[12]
        (gate|up|down|gate_up)_proj c_fc w[123] wi wi_[01]""",
    "embedding": r"\w*embed\w* wte wpe shared cls_token mask_token class_token pos_emb\w* emb",
}
_PATTERNS = {
    part: re.compile("|".join(words.split()), re.IGNORECASE) for part, words in _WORDS.items()
}
# What stands alone at the end of a network, outside any block.
_LAST = re.compile(r"(output|fc|linear|classifier)\.(weight|bias)", re.IGNORECASE)
# BERT calls the second map of a feed-forward part "output", and so the one of its attention.
_SECOND_MAP = re.compile(r"\.\d+\.output\.dense\.", re.IGNORECASE)
_BLOCK = re.compile(
    r"(?:^|\.)(?:\w*layers?|h|\w*blocks?|layer_groups)\.(\d+)(?=\.)|_l(\d+)(?:_reverse)?$",
    re.IGNORECASE,
)


def part_of(name: str) -> str:
    """embedding, attention, feed_forward, normalization, head, or other.

    Example:
        >>> part_of("encoder.layer.0.attention.self.query.weight"), part_of("pooler.dense.weight")
        ('attention', 'other')
    """
    if _LAST.fullmatch(name):
        return "head"
    if _SECOND_MAP.search(name):
        return "feed_forward"
    words = name.split(".")
    for part, pattern in _PATTERNS.items():
        if any(pattern.fullmatch(word) for word in words):
            return part
    return "other"


def layer_of(name: str) -> int | None:
    """Number of the block, the outermost if they are nested, or None.

    Example:
        >>> layer_of("encoder.block.3.layer.0.SelfAttention.q.weight"), layer_of("weight_ih_l1")
        (3, 1)
    """
    match = _BLOCK.search(name)
    return None if match is None else int(match[1] or match[2])
