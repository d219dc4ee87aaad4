"""A contraction frame by frame: every frame is a diagram of the same value."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rankscope.diagrams.contraction import Contraction, Plan, RegionPlan
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Drawable, Network, Sum, as_network, diagrams_of
from rankscope.diagrams.parts import PARAMETER_ROLES, Region, Role
from rankscope.diagrams.repeats import Block, collapse
from rankscope.diagrams.rewriting import collapse_region, contract_nodes
from rankscope.drawing.layout.placement import PLAIN_VIEW
from rankscope.drawing.layout.tensors import index_text, node_text, plain_tex, tag_text
from rankscope.drawing.page import step_tex, with_step_labels
from rankscope.errors import ContractionError

# --- What is written beside a contraction: the formula, the cost, and a name for the result -------


WEIGHT = re.compile(r"\\math\w+\{W\}\^\{?(?:\\,)?([A-Z])\}?")
BOLD_LETTER = re.compile(r"\\mathbf\{([A-Z])\}")
MOST_SYMBOLS = 8
MAGNITUDES = (("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))


def node_tex(diagram: Diagram, name: str) -> str:
    """What is written in a node, without dollars."""
    return node_text(diagram.node_by_name[name])[1:-1]


def _in_order(diagram: Diagram, names: tuple[str, ...]) -> list[str]:
    """Names in the order of a formula: the diagram's order, weights last."""
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
    letters = [match[1] for label in labels if (match := BOLD_LETTER.fullmatch(label))]
    wanted_label = None
    if function in ("softmax", "log_softmax"):
        wanted_label = "S"
    elif len(letters) == len(nodes) == 2 and Role.RESULT not in roles:
        wanted_label = "".join(letters)
    elif is_last:
        wanted_label = "Y"
    elif roles[-1] in PARAMETER_ROLES and set(roles[:-1]) == {Role.DATA}:
        made = WEIGHT.fullmatch(labels[-1])
        wanted_label = made[1] if made else None
    return None if wanted_label is None else rf"\mathbf{{{wanted_label}}}"


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


Planner = Callable[[Diagram], Plan]


@dataclass(frozen=True)
class Frame:
    """One diagram on the way, and the move that led to it.

    Args:
        diagram: what is left to do.
        formula: the move, a line of TeX with dollars.
        cost: what it costs, a line of TeX with dollars.
        merged: nodes of the frame before that became `result`; empty for the first frame.
        result: the node they became.
    """

    diagram: Diagram
    formula: str
    cost: str
    merged: tuple[str, ...] = ()
    result: str = ""


@dataclass(frozen=True)
class FrameSequence:
    """The frames of one diagram's contraction, which is carried out `count` times.

    `heading` (TeX with dollars) is empty when the sequence is the only one.
    """

    heading: str
    frames: tuple[Frame, ...]
    plan: Plan
    count: int = 1


def contraction_frames(
    diagram: Diagram, plan: Plan, *, label: str | None = None
) -> tuple[Frame, ...]:
    r"""All frames from the diagram to its value, in the plan's order.

    Args:
        diagram: what is contracted.
        plan: in which order.
        label: what the value is called, TeX without dollars; by default Y or the like.

    Example:
        >>> from rankscope.diagrams.contraction import plan_contraction
        >>> from rankscope.diagrams.einsum import from_einsum
        >>> chain = from_einsum("ij,jk,kl->il", shapes=((2, 3), (3, 4), (4, 5)))
        >>> for frame in contraction_frames(chain, plan_contraction(chain)):
        ...     print(frame.formula)
        start
        $\mathbf{AB} = \sum_{j}\,\mathbf{A}\,\mathbf{B}$
        $\mathbf{Y} = \sum_{k}\,\mathbf{AB}\,\mathbf{C}$

    Raises:
        ContractionError: if the plan is for another diagram.
    """
    structure = diagram.structure
    wanted = [(r, tuple(o.name for o in structure.operands[r])) for r in structure.evaluation_order]
    if (planned := [(part.region, part.operands) for part in plan.regions]) != wanted:
        raise ContractionError(
            f"The plan is for another diagram than {diagram.name!r}: it contracts {planned}, but "
            f"the diagram's regions hold {wanted}. Plan this diagram."
        )
    builder = _FrameBuilder(diagram, label)
    for region in plan.regions:
        builder.add_region(region)
    return tuple(builder.frames)


def frame_sequences(drawable: Drawable, planner: Planner) -> tuple[FrameSequence, ...]:
    """One sequence of frames for every diagram; repeated blocks of a network come once.

    A diagram that is a value already, as the X of a residual sum, has no sequence.
    """
    if isinstance(drawable, Diagram):
        plan = planner(drawable)
        return (FrameSequence("", contraction_frames(drawable, plan), plan),)
    network = as_network(drawable)
    sequences: list[FrameSequence] = []
    for block in with_step_labels(collapse(network)):
        sequences += _block_sequences(block, planner, network)
    return tuple(sequence for sequence in sequences if len(sequence.frames) > 1) or tuple(sequences)


def total_flops(sequences: Iterable[FrameSequence]) -> int:
    """Operations of all sequences, repeats included; functions of barriers are not counted."""
    return sum(sequence.count * sequence.plan.flops for sequence in sequences)


def largest_intermediate(sequences: Iterable[FrameSequence]) -> int:
    """Entries of the largest value on the way."""
    return max(sequence.plan.largest_intermediate for sequence in sequences)


def _block_sequences(block: Block, planner: Planner, network: Network) -> list[FrameSequence]:
    sequences: list[FrameSequence] = []
    for step in block.steps:
        label = None if len(network.steps) == 1 else step_tex(step)
        diagrams = diagrams_of(step.body)
        for number, diagram in enumerate(diagrams, start=1):
            is_term = isinstance(step.body, Sum)
            plan = planner(diagram)
            parts = [f"${label}$"] if label else []
            parts += [f"term {number} of {len(diagrams)}"] if is_term else []
            parts += [rf"$\times\,{block.count}$"] if block.count > 1 else []
            frames = contraction_frames(diagram, plan, label=None if is_term else label)
            sequences.append(FrameSequence(",  ".join(parts), frames, plan, block.count))
    return sequences


class _FrameBuilder:
    """The diagram as it shrinks, and what the plan's operands are called in it."""

    def __init__(self, diagram: Diagram, label: str | None) -> None:
        self.diagram = diagram
        self.start = diagram
        self.label = label
        self.called: dict[str, str] = {}
        self.labels = {node_tex(diagram, node.name): None for node in diagram.nodes}
        self.frames = [Frame(diagram, "start", sizes_text(diagram))]

    def add_region(self, plan: RegionPlan) -> None:
        for place, move in enumerate(plan.contractions, start=1):
            self._contract(plan, move, is_last=place == len(plan.contractions))
        if plan.region is not None:
            self._finish(plan.region, plan.size)

    def _contract(self, plan: RegionPlan, move: Contraction, *, is_last: bool) -> None:
        before = self.diagram
        names = tuple(self.called.get(name, name) for name in move.operands)
        function = None
        if is_last and plan.region is not None:
            function = before.region_by_name[plan.region].function.name
        is_value = is_last and plan.region is None
        wanted_label = self.label if is_value else None
        wanted_label = wanted_label or product_label(
            before, names, function=function, is_last=is_value
        )
        label = self._new_label(wanted_label)
        result = self.called[move.result] = self._new_name()
        self.diagram = contract_nodes(before, names, result, label=label)
        formula = f"${label} = {contraction_tex(before, move, names)}$"
        self.frames.append(Frame(self.diagram, formula, move_cost(move), names, result))

    def _finish(self, region: str, size: int) -> None:
        before = self.diagram
        part = before.region_by_name[region]
        (member,) = before.structure.members[region]
        label = self._new_label(region_label(part))
        self.diagram = collapse_region(before, region, region, label=label)
        formula = f"${label} = {region_tex(before, part, node_tex(before, member))}$"
        self.frames.append(Frame(self.diagram, formula, values(size), (member,), region))

    def _new_label(self, wanted_label: str | None) -> str:
        """The label that was asked for, if it is still free, or else T with a number."""
        number = 1
        while wanted_label is None or wanted_label in self.labels:
            wanted_label = plain_tex(f"T{number}", face="mathbf")
            number += 1
        self.labels[wanted_label] = None
        return wanted_label

    def _new_name(self) -> str:
        """A name that nothing in the diagram has, now or later."""
        parts = (*self.start.holders, *self.start.regions, *self.diagram.nodes)
        taken = {part.name for part in parts}
        number = len(self.frames)
        while f"T{number}" in taken:
            number += 1
        return f"T{number}"
