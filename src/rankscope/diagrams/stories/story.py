"""A contraction told frame by frame: every frame is a diagram of the same value."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.wording import plain_tex
from rankscope.diagrams.network import Drawable, Network, Sum, as_network, diagrams_of
from rankscope.diagrams.pictures.step_labels import step_tex, with_step_labels
from rankscope.diagrams.plan import Contraction, Plan, RegionPlan
from rankscope.diagrams.repeats import Block, collapse
from rankscope.diagrams.rewriting import collapse_region, contract_nodes
from rankscope.diagrams.stories.captions import (
    contraction_tex,
    move_cost,
    node_tex,
    product_label,
    region_label,
    region_tex,
    sizes_text,
    values,
)
from rankscope.errors import ContractionError

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
class Chapter:
    """The story of one diagram, which is carried out `count` times.

    `heading` (TeX with dollars) is empty when the chapter is the only one.
    """

    heading: str
    frames: tuple[Frame, ...]
    plan: Plan
    count: int = 1


def story(diagram: Diagram, plan: Plan, *, label: str | None = None) -> tuple[Frame, ...]:
    r"""All frames from the diagram to its value, in the plan's order.

    Args:
        diagram: what is contracted.
        plan: in which order.
        label: what the value is called, TeX without dollars; by default Y or the like.

    Example:
        >>> from rankscope.diagrams.contraction import plan_contraction
        >>> from rankscope.diagrams.einsum import from_einsum
        >>> chain = from_einsum("ij,jk,kl->il", shapes=((2, 3), (3, 4), (4, 5)))
        >>> for frame in story(chain, plan_contraction(chain)):
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
    teller = _Teller(diagram, label)
    for region in plan.regions:
        teller.tell(region)
    return tuple(teller.frames)


def tell(drawable: Drawable, planner: Planner) -> tuple[Chapter, ...]:
    """One chapter for every diagram; repeated blocks of a network are told once.

    A diagram that is a value already, as the X of a residual sum, has no chapter.
    """
    if isinstance(drawable, Diagram):
        plan = planner(drawable)
        return (Chapter("", story(drawable, plan), plan),)
    network = as_network(drawable)
    chapters: list[Chapter] = []
    for block in with_step_labels(collapse(network)):
        chapters += _block_chapters(block, planner, network)
    return tuple(chapter for chapter in chapters if len(chapter.frames) > 1) or tuple(chapters)


def total_flops(chapters: Iterable[Chapter]) -> int:
    """Operations of all chapters, repeats included; functions of barriers are not counted."""
    return sum(chapter.count * chapter.plan.flops for chapter in chapters)


def largest_intermediate(chapters: Iterable[Chapter]) -> int:
    """Entries of the largest value on the way."""
    return max(chapter.plan.largest_intermediate for chapter in chapters)


def _block_chapters(block: Block, planner: Planner, network: Network) -> list[Chapter]:
    chapters: list[Chapter] = []
    for step in block.steps:
        label = None if len(network.steps) == 1 else step_tex(step)
        diagrams = diagrams_of(step.body)
        for number, diagram in enumerate(diagrams, start=1):
            is_term = isinstance(step.body, Sum)
            plan = planner(diagram)
            parts = [f"${label}$"] if label else []
            parts += [f"term {number} of {len(diagrams)}"] if is_term else []
            parts += [rf"$\times\,{block.count}$"] if block.count > 1 else []
            frames = story(diagram, plan, label=None if is_term else label)
            chapters.append(Chapter(",  ".join(parts), frames, plan, block.count))
    return chapters


class _Teller:
    """The diagram as it shrinks, and what the plan's operands are called in it."""

    def __init__(self, diagram: Diagram, label: str | None) -> None:
        self.diagram = diagram
        self.start = diagram
        self.label = label
        self.called: dict[str, str] = {}
        self.labels = {node_tex(diagram, node.name): None for node in diagram.nodes}
        self.frames = [Frame(diagram, "start", sizes_text(diagram))]

    def tell(self, plan: RegionPlan) -> None:
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
        wished = self.label if is_value else None
        wished = wished or product_label(before, names, function=function, is_last=is_value)
        label = self._new_label(wished)
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

    def _new_label(self, wished: str | None) -> str:
        """The label that was wished for, if it is still free, or else T with a number."""
        number = 1
        while wished is None or wished in self.labels:
            wished = plain_tex(f"T{number}", face="mathbf")
            number += 1
        self.labels[wished] = None
        return wished

    def _new_name(self) -> str:
        """A name that nothing in the diagram has, now or later."""
        parts = (*self.start.holders, *self.start.regions, *self.diagram.nodes)
        taken = {part.name for part in parts}
        number = len(self.frames)
        while f"T{number}" in taken:
            number += 1
        return f"T{number}"
