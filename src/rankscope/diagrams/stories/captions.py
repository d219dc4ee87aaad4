r"""What is written beside a contraction: the formula, the cost, and a name for the result.

A weight's superscript names the value it makes: data times :math:`W^Q` is called Q. What goes
into a softmax is S, the value of the whole is Y, a product of two tensors with one-letter names
keeps both letters, a barrier's value has the barrier's name; all others are T₁, T₂, ….
"""

import re
from collections import Counter

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.placement import PLAIN_VIEW
from rankscope.diagrams.layout.wording import index_text, node_text, plain_tex, tag_text
from rankscope.diagrams.parts import PARAMETER_ROLES, Region, Role
from rankscope.diagrams.plan import Contraction

WEIGHT = re.compile(r"\\math\w+\{W\}\^\{?(?:\\,)?([A-Z])\}?")
BOLD_LETTER = re.compile(r"\\mathbf\{([A-Z])\}")
MOST_SYMBOLS = 8
MAGNITUDES = (("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))


def node_tex(diagram: Diagram, name: str) -> str:
    """What is written in a node, without dollars."""
    return node_text(diagram.node_by_name[name])[1:-1]


def _in_order(diagram: Diagram, names: tuple[str, ...]) -> list[str]:
    """As a formula would have them: in the diagram's order, weights last."""
    place = {node.name: number for number, node in enumerate(diagram.nodes)}
    is_weight = {name: diagram.node_by_name[name].role in PARAMETER_ROLES for name in names}
    return sorted(names, key=lambda name: (is_weight[name], place[name]))


def product_label(
    diagram: Diagram, names: tuple[str, ...], *, function: str | None, is_last: bool
) -> str | None:
    """A good label for the product of some nodes, or None when there is none.

    Args:
        diagram: the diagram before the move.
        names: the nodes that are merged.
        function: what the finished region applies, if this move finishes one.
        is_last: whether the product is the value of the whole diagram.
    """
    nodes = [diagram.node_by_name[name] for name in _in_order(diagram, names)]
    labels = [node_text(node)[1:-1] for node in nodes]
    roles = [node.role for node in nodes]
    letters = [found[1] for label in labels if (found := BOLD_LETTER.fullmatch(label))]
    wished = None
    if function in ("softmax", "log_softmax"):
        wished = "S"
    elif len(letters) == len(nodes) == 2 and Role.RESULT not in roles:
        wished = "".join(letters)
    elif is_last:
        wished = "Y"
    elif roles[-1] in PARAMETER_ROLES and set(roles[:-1]) == {Role.DATA}:
        made = WEIGHT.fullmatch(labels[-1])
        wished = made[1] if made else None
    return None if wished is None else rf"\mathbf{{{wished}}}"


def region_label(region: Region) -> str | None:
    """A label for the value of a barrier: its name, if that is one letter and perhaps a number."""
    if re.fullmatch(r"[A-Za-z]_?\d*", region.name):
        return plain_tex(region.name, face="mathbf")
    return None


def contraction_tex(diagram: Diagram, move: Contraction, names: tuple[str, ...]) -> str:
    r"""The right-hand side of a move: \sum over what is summed, then the factors.

    `names` are the operands' names in the diagram, which may differ from the plan's.
    """
    fired = [diagram.convolution_by_name[name] for name in move.convolutions]
    slid = {leg for part in fired for leg in (part.input, part.kernel)}
    held = dict.fromkeys(index for indices in move.inputs for index in indices)
    held |= dict.fromkeys(part.output for part in fired)
    summed = [index for index in held if index not in move.output and index not in slid]
    factors = [node_tex(diagram, name) for name in _in_order(diagram, names)]
    if len(factors) == 1:
        return _single_tex(diagram, move, factors[0], summed)
    sign = r"\ast" if fired else _product_sign(move, has_sum=bool(summed))
    total = rf"\sum_{{{_listed(diagram, summed)}}}\," if summed else ""
    return total + sign.join(factors)


def _single_tex(diagram: Diagram, move: Contraction, factor: str, summed: list[str]) -> str:
    counted = Counter(move.inputs[0])
    repeated = [index for index, count in counted.items() if count > 1]
    traced = [index for index in repeated if index in summed]
    kept = [index for index in repeated if index not in summed]
    rest = [index for index in summed if index not in repeated]
    if kept:
        factor = rf"\mathrm{{diag}}_{{{_listed(diagram, kept)}}}({factor})"
    if traced:
        factor = rf"\mathrm{{tr}}_{{{_listed(diagram, traced)}}}({factor})"
    return (rf"\sum_{{{_listed(diagram, rest)}}}\," if rest else "") + factor


def _product_sign(move: Contraction, *, has_sum: bool) -> str:
    if has_sum or move.is_lookup:
        return r"\,"
    first, *others = move.inputs
    is_shared = any(index in first for other in others for index in other)
    return r"\odot" if is_shared else r"\otimes"


def _listed(diagram: Diagram, indices: list[str]) -> str:
    names = (index_text(diagram.index_by_name[index], PLAIN_VIEW)[1:-1] for index in indices)
    # Two indices of one symbol look alike, and are written once.
    return ",".join(dict.fromkeys(names))


def region_tex(diagram: Diagram, region: Region, argument: str) -> str:
    r"""A barrier's function applied to something, as in softmax_M(S/\sqrt{D})."""
    tag = tag_text(diagram, region)[1:-1]
    if region.label is None and region.scale is not None:
        # The tag already says where the value goes.
        return tag.replace(r"\cdot", argument, 1)
    return f"{tag}({argument})"


def move_cost(move: Contraction) -> str:
    """Operations and entries of one move.

    Example:
        >>> move_cost(Contraction((0, 1), ("A", "B"), (), "r#0", (), (), 50_331_648, 32_768))
        '50.3 MFLOP,  32.8 k values'
    """
    if move.is_lookup:
        return f"look-up,  {values(move.size)}"
    return f"{short_number(move.flops, unit='FLOP')},  {values(move.size)}"


def values(count: int) -> str:
    """How many entries a tensor has, in words."""
    return "1 value" if count == 1 else short_number(count, unit=" values")


def short_number(count: int, *, unit: str) -> str:
    """Three digits and a magnitude.

    Example:
        >>> short_number(3_221_225_472, unit="FLOP"), short_number(64, unit=" values")
        ('3.22 GFLOP', '64 values')
    """
    for letter, power in MAGNITUDES:
        # Rounding to three digits must not reach 1000 of the next smaller magnitude.
        if count >= power * 0.9995:
            return f"{_three_digits(count / power)} {letter}{unit}"
    return f"{count} {unit}" if unit and unit[0] != " " else f"{count}{unit}"


def _three_digits(number: float) -> str:
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{digits}f}"


def sizes_text(diagram: Diagram) -> str:
    """Sizes of all symbols, equal ones together, as in N=M=512, F=768; empty without sizes."""
    groups: dict[int, dict[str, None]] = {}
    for index in diagram.indices:
        if index.size is not None:
            tex = index_text(index, PLAIN_VIEW)[1:-1]
            groups.setdefault(index.size, {})[tex] = None
    if not groups:
        return ""
    if sum(map(len, groups.values())) > MOST_SYMBOLS:
        return f"{len(diagram.indices)} indices of sizes {min(groups)} to {max(groups)}"
    listed = r",\ \ ".join(f"{'='.join(names)}={size}" for size, names in groups.items())
    return f"${listed}$"
