r"""TeX for the tensors of a module, made from their qualified names."""

import re
from collections.abc import Mapping

# Projections of attention, by the names that people give them.
PROJECTIONS: Mapping[str, str] = {
    **dict.fromkeys(("q", "query", "q_proj", "to_q", "wq", "w_q", "query_proj"), "Q"),
    **dict.fromkeys(("k", "key", "k_proj", "to_k", "wk", "w_k", "key_proj"), "K"),
    **dict.fromkeys(("v", "value", "v_proj", "to_v", "wv", "w_v", "value_proj"), "V"),
    **dict.fromkeys(("o", "out_proj", "o_proj", "to_out", "wo", "w_o", "c_proj", "proj"), "O"),
}


def weight_label(array: str) -> str:
    r"""TeX for a weight, from the last word of its module's path.

    Example:
        >>> weight_label("layers.0.linear1.weight")
        '\\mathbf{W}_{1}'
        >>> weight_label("q_proj.weight")
        '\\mathbf{W}^{Q}'
        >>> weight_label("weight")
        '\\mathbf{W}'
    """
    path = array.rpartition(".")[0]
    word = path.rpartition(".")[2]
    if word in PROJECTIONS:
        return rf"\mathbf{{W}}^{{{PROJECTIONS[word]}}}"
    number = re.search(r"\d+$", word)
    return rf"\mathbf{{W}}_{{{number.group()}}}" if number else r"\mathbf{W}"


def input_label(name: str, position: int) -> str:
    r"""TeX for an input of a module: the first is X, others say their name.

    Example:
        >>> input_label("memory", 1)
        '\\mathbf{X}_{\\mathrm{memory}}'
    """
    if position == 0:
        return r"\mathbf{X}_{0}"
    word = re.sub(r"[^A-Za-z0-9]", r"\\,", name)
    return rf"\mathbf{{X}}_{{\mathrm{{{word}}}}}"


def fraction_label(number: float) -> str:
    r"""TeX for a constant.

    Example:
        >>> fraction_label(0.25)
        '\\frac{1}{4}'
    """
    if number == 1.0:
        return r"\mathbf{1}"
    whole = round(1.0 / number)
    return rf"\frac{{1}}{{{whole}}}" if 1.0 / whole == number else f"{number:g}"
