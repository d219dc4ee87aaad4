"""Which part of a model a tensor belongs to, told by its name.

No torch here: names are known before any tensor is read.
"""

import re

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
    found = _BLOCK.search(name)
    return None if found is None else int(found[1] or found[2])
