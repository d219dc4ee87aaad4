r"""Attention: single-head, multi-head, grouped-query, and the forms with one rank index.

The symbols are those of the pictures: N queries, M keys, F features, H heads, D features per
head, G groups of keys and values, R the rank of the CP and tunable forms. The softmax over M is
a barrier: everything inside it is finished before the values are touched.
"""

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Function, Index, IndexKind, Node, Region, Role
from rankscope.errors import FamilyError


def single_head(
    *,
    num_queries: int | None = None,
    num_keys: int | None = None,
    num_features: int | None = None,
    head_size: int | None = None,
    num_heads: int = 1,
) -> Diagram:
    r"""Attention with one head and no output matrix.

    .. math:: Y_{nc} = \sum_m \operatorname{softmax}_m
              \Bigl(\sum X_{nf} W^Q_{fd} W^K_{gd} X_{mg} / \sqrt D\Bigr) \sum_e X_{me} W^V_{ec}

    Raises:
        FamilyError: if `num_heads` is not 1.
    """
    if num_heads != 1:
        raise FamilyError(
            f"single-head: H (number of heads) must be 1, got {num_heads}; use multi-head."
        )
    own = (*_features("fge", num_features), *_width("dc", head_size))
    weights = (_matrix("Q", "fd"), _matrix("K", "gd"), _matrix("V", "ec"))
    tokens = (num_queries, num_keys)
    return _attention("single-head", "Single-head attention", tokens, own, weights, "D**-0.5")


def multi_head(
    *,
    num_queries: int | None = None,
    num_keys: int | None = None,
    num_features: int | None = None,
    num_heads: int | None = None,
    head_size: int | None = None,
) -> Diagram:
    r"""Multi-head attention: the head index h is on all four weights.

    .. math:: S_{nhm} = \sum X_{nf} W^Q_{fdh} W^K_{gdh} X_{mg} / \sqrt D, \qquad
              Y_{no} = \sum \operatorname{softmax}_m(S)_{nhm} X_{me} W^V_{ech} W^O_{och}

    Example:
        >>> multi_head(num_heads=12).structure.legs["A"]
        ('n', 'h', 'm')
    """
    own = (
        *_features("fgeo", num_features),
        *_width("dc", head_size),
        Index("h", num_heads, "H", IndexKind.HEAD),
    )
    weights = tuple(map(_tensor, "QKVO", ("fdh", "gdh", "ech", "och")))
    tokens = (num_queries, num_keys)
    return _attention("multi-head", "Multi-head attention", tokens, own, weights, "D**-0.5")


def grouped_query(
    *,
    num_queries: int | None = None,
    num_keys: int | None = None,
    num_features: int | None = None,
    num_heads: int | None = None,
    head_size: int | None = None,
    num_groups: int | None = None,
) -> Diagram:
    r"""Grouped-query attention: H query heads share G heads of keys and values.

    Query head (k, q) is the q-th of the H / G in group k:

    .. math:: S_{nkqm} = \sum X_{nf} W^Q_{fdkq} W^K_{gdk} X_{mg} / \sqrt D, \qquad
              Y_{no} = \sum \operatorname{softmax}_m(S)_{nkqm} X_{me} W^V_{eck} W^O_{ockq}

    Raises:
        FamilyError: if `num_heads` is not a multiple of `num_groups`.
    """
    shared, label = None, r"H\,/\,G"
    if num_heads is not None and num_groups is not None:
        if num_groups < 1 or num_heads % num_groups:
            raise FamilyError(
                f"grouped-query: H (query heads) must be a multiple of G (groups), "
                f"got H={num_heads} and G={num_groups}."
            )
        shared = num_heads // num_groups
    elif num_heads is not None:
        label = rf"{num_heads}\,/\,G"
    own = (
        *_features("fgeo", num_features),
        *_width("dc", head_size),
        Index("k", num_groups, "G", IndexKind.HEAD),
        Index("q", shared, "Q", IndexKind.HEAD, label),
    )
    weights = tuple(map(_tensor, "QKVO", ("fdkq", "gdk", "eck", "ockq")))
    tokens = (num_queries, num_keys)
    return _attention("grouped-query", "Grouped-query attention", tokens, own, weights, "D**-0.5")


def cp_attention(
    *,
    num_queries: int | None = None,
    num_keys: int | None = None,
    num_features: int | None = None,
    num_heads: int | None = None,
    head_size: int | None = None,
    attention_rank: int | None = None,
) -> Diagram:
    r"""Attention in CP form: head and head features become one index r, with a map for each r.

    .. math:: S_{nrm} = \sum X_{nf} W^Q_{fr} W^K_{gr} X_{mg}, \qquad
              Y_{no} = \sum \operatorname{softmax}_m(S)_{nrm} X_{me} W^V_{er} W^O_{or}

    It is multi-head attention with R heads of one feature, so it is not equivalent to one with
    R = D H: the maps are N x R x M. R is `attention_rank`, by default D H when both are given.
    """
    own = (
        *_features("fgeo", num_features),
        _rank_index("r", attention_rank, num_heads, head_size),
    )
    weights = tuple(map(_matrix, "QKVO", ("fr", "gr", "er", "or")))
    tokens = (num_queries, num_keys)
    return _attention("cp-attention", "Attention in CP form", tokens, own, weights)


def tunable_attention(
    *,
    num_queries: int | None = None,
    num_keys: int | None = None,
    num_features: int | None = None,
    num_heads: int | None = None,
    head_size: int | None = None,
    attention_rank: int | None = None,
) -> Diagram:
    r"""Attention with a tunable core C between score channels r and value channels t.

    .. math:: S_{nmt} = \sum C_{tr} X_{nf} W^Q_{fr} W^K_{gr} X_{mg} / \sqrt R, \qquad
              Y_{no} = \sum \operatorname{softmax}_m(S)_{nmt} X_{me} W^V_{et} W^O_{ot}

    Multi-head attention is the core that is 1 where r and t are in one head and 0 elsewhere
    (times the square root of H, for the scale). R is `attention_rank`, by default D H when both
    are given.
    """
    own = (
        *_features("fgeo", num_features),
        *(_rank_index(name, attention_rank, num_heads, head_size) for name in "rt"),
    )
    query, key, value, output = map(_matrix, "QKVO", ("fr", "gr", "et", "ot"))
    weights = (query, key, Node("C", ("t", "r"), Role.CORE), value, output)
    title, tokens = "Attention with a tunable core", (num_queries, num_keys)
    return _attention("tunable-attention", title, tokens, own, weights, "R**-0.5")


def _tokens(num_queries: int | None, num_keys: int | None) -> tuple[Index, Index]:
    kind = IndexKind.SEQUENCE
    return Index("n", num_queries, "N", kind), Index("m", num_keys, "M", kind)


def _features(names: str, size: int | None) -> tuple[Index, ...]:
    return tuple(Index(name, size, "F", IndexKind.FEATURE) for name in names)


def _width(names: str, size: int | None) -> tuple[Index, ...]:
    return tuple(Index(name, size, "D", IndexKind.FEATURE) for name in names)


def _rank_index(
    name: str, attention_rank: int | None, num_heads: int | None, head_size: int | None
) -> Index:
    label = "R"
    if attention_rank is None and num_heads is not None and head_size is not None:
        attention_rank = num_heads * head_size
    elif attention_rank is None and num_heads is not None:
        label = rf"{num_heads}\,D"
    elif attention_rank is None and head_size is not None:
        label = rf"{head_size}\,H"
    return Index(name, attention_rank, "R", IndexKind.RANK, label)


def _data(num_queries: int | None, num_keys: int | None) -> tuple[Node, Node, Node]:
    known = num_queries is not None and num_keys is not None
    # Unequal lengths cannot be the same sequence, so the memory gets a letter of its own.
    memory = r"\mathbf{Y}" if known and num_queries != num_keys else r"\mathbf{X}"
    return (
        Node("Xq", ("n", "f"), Role.DATA, r"\mathbf{X}", array="query"),
        Node("Xk", ("m", "g"), Role.DATA, memory, array="memory"),
        Node("Xv", ("m", "e"), Role.DATA, memory, array="memory"),
    )


def _matrix(letter: str, indices: str) -> Node:
    return Node(f"W{letter}", tuple(indices), label=rf"\mathbf{{W}}^{{{letter}}}")


def _tensor(letter: str, indices: str) -> Node:
    return Node(f"W{letter}", tuple(indices), label=rf"\mathcal{{W}}^{{\,{letter}}}")


def _attention(
    name: str,
    title: str,
    tokens: tuple[int | None, int | None],
    own: tuple[Index, ...],
    weights: tuple[Node, ...],
    scale: str | None = None,
) -> Diagram:
    """Weights between queries, keys and values; a softmax around all but values and output."""
    query, keys, values = _data(*tokens)
    of_scores = [node for node in weights if node.name not in ("WV", "WO")]
    of_values, *output = (node for node in weights if node.name in ("WV", "WO"))
    inside = (query, *of_scores[:2], keys, *of_scores[2:])
    return Diagram(
        name,
        (*_tokens(*tokens), *own),
        (*inside, of_values, values, *output),
        output=("n", "o" if output else "c"),
        regions=(_softmax(tuple(node.name for node in inside), scale=scale),),
        title=title,
    )


def _softmax(members: tuple[str, ...], scale: str | None = None) -> Region:
    return Region("A", members, Function("softmax"), over=("m",), scale=scale)
