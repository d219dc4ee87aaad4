"""Repeated blocks of a network: twelve equal layers are one block, twelve times.

Two runs of steps are equal when they differ only in numbers inside names ("layers.0" against
"layers.1") and are wired alike: every array that a block reads is made earlier in the same
block; or made in the block before (*carried*; the first block reads an *entry* value in its
place); or the same for all blocks; or, for parameters, the block's own. One renaming of arrays
turns each block into the next.
Nothing after the run may read a block other than the last, so that a picture that shows the
first block and "×12" hides no wire.
"""

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Box, Call, Network, Step, Sum, diagrams_of, nodes_of
from rankscope.diagrams.parts import Node, Role

# --- When two steps of a network look alike: equal once the numbers in names are left out ---------


NUMBER = re.compile(r"\d+")


def _without_numbers(text: str | None) -> str:
    return NUMBER.sub("#", text or "")


def step_key(step: Step) -> Hashable:
    """Equal for steps that look alike, numbers in names left out."""
    return (
        _without_numbers(step.name),
        _without_numbers(step.label),
        _body_key(step.body),
        tuple(_diagram_key(diagram) for diagram in diagrams_of(step.body)),
    )


def _body_key(body: Body) -> Hashable:
    """Key of everything in a body but its diagrams."""
    match body:
        case Sum():
            return tuple(term.coefficient for term in body.terms)
        case Call():
            return (body.function, body.arguments, body.shapes)
        case Box():
            return (body.class_name, tuple(step_key(step) for step in body.steps))
        case Diagram():
            return ()


def _diagram_key(diagram: Diagram) -> Hashable:
    index_at = {index.name: position for position, index in enumerate(diagram.indices)}
    parts = (*diagram.holders, *diagram.regions)
    part_at = {part.name: position for position, part in enumerate(parts)}

    def at(names: Iterable[str]) -> tuple[int, ...]:
        return tuple(index_at[name] for name in names)

    indices = tuple(
        (index.size, _without_numbers(index.symbol), index.kind, _without_numbers(index.label))
        for index in diagram.indices
    )
    nodes = tuple((at(node.indices), *_node_key(node)) for node in diagram.nodes)
    convolutions = tuple(
        (at(c.indices), c.stride, c.padding, c.dilation, c.padding_mode)
        for c in diagram.convolutions
    )
    regions = tuple(
        (
            tuple(part_at[name] for name in region.members),
            region.function,
            at(region.over),
            region.scale,
            at(region.causal or ()),
            _without_numbers(region.label),
        )
        for region in diagram.regions
    )
    return (indices, nodes, convolutions, regions, at(diagram.output))


def _node_key(node: Node) -> tuple[Hashable, ...]:
    side = None if node.narrow_side is None else node.indices.index(node.narrow_side)
    array = None if node.role is Role.DATA else _without_numbers(node.source)
    label = _without_numbers(node.label or node.name)
    return (node.role, label, array, node.rows, node.is_one_hot, side, node.fill)


@dataclass(frozen=True)
class Block:
    """Equal runs of steps, in order.

    `carried` pairs a step of the first run with the array it replaces in the next run.
    """

    repetitions: tuple[tuple[Step, ...], ...]
    carried: tuple[tuple[str, str], ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The first run, which stands for all."""
        return self.repetitions[0]

    @property
    def count(self) -> int:
        """Number of repetitions."""
        return len(self.repetitions)


@dataclass(frozen=True)
class _Run:
    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.period * self.count

    @property
    def saved(self) -> int:
        """Steps that need not be drawn."""
        return self.period * (self.count - 1)


# What one node reads: ("own", position, item), ("carried", position, item), ("outer", array, 0),
# or, for a parameter, ("parameter", first slot of the block with the same array, 0).
Slot = tuple[str, int | str, int]


def collapse(network: Network) -> tuple[Block, ...]:
    """Group a network's steps into blocks; a step that is not repeated is a block of its own.

    Example:
        >>> from rankscope.diagrams.diagram import Diagram
        >>> from rankscope.diagrams.parts import Index
        >>> def layer(number: int) -> Step:
        ...     nodes = (
        ...         Node("X", ("i",), Role.DATA, array=f"x{number}"),
        ...         Node("W", ("i", "j"), array=f"layer{number}.weight"),
        ...     )
        ...     indices = (Index("i", 4), Index("j", 4))
        ...     return Step(f"x{number + 1}", Diagram("layer", indices, nodes, ("j",)))
        >>> [block.count for block in collapse(Network("deep", tuple(map(layer, range(12)))))]
        [12]
    """
    search = _Search(network)
    return tuple(search.blocks(0, len(network.steps)))


def expand(blocks: Iterable[Block]) -> tuple[Step, ...]:
    """The steps that `collapse` grouped."""
    return tuple(step for block in blocks for steps in block.repetitions for step in steps)


class _Search:
    def __init__(self, network: Network) -> None:
        self.steps = network.steps
        self.made = {
            name: position for position, step in enumerate(network.steps) for name in step.arrays
        }
        # Which of the arrays of its step an array is.
        self.item = {
            name: place for step in network.steps for place, name in enumerate(step.arrays)
        }
        numbers: dict[Hashable, int] = {}
        self.keys = [numbers.setdefault(step_key(s), len(numbers)) for s in network.steps]
        self.slots = [tuple(_slot_nodes(step.body)) for step in network.steps]
        # Where each step's value is read for the last time.
        self.last_read = [-1] * len(network.steps)
        for position, nodes in enumerate(self.slots):
            for node in nodes:
                if node.role is Role.DATA and node.source in self.made:
                    self.last_read[self.made[node.source]] = position
        for name in network.outputs:
            if name in self.made:
                self.last_read[self.made[name]] = len(network.steps)

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """Blocks of steps[start:stop]: the run that saves most, and what is left around it."""
        while start < stop:
            run = self._best(start, stop)
            if run is None:
                yield from (Block(((step,),)) for step in self.steps[start:stop])
                return
            yield from self.blocks(start, run.start)
            yield self._block(run)
            start = run.stop

    def _block(self, run: _Run) -> Block:
        repetitions = tuple(
            self.steps[first : first + run.period]
            for first in range(run.start, run.stop, run.period)
        )
        return Block(repetitions, self._carried(run))

    def _carried(self, run: _Run) -> tuple[tuple[str, str], ...]:
        pairs: dict[tuple[str, str], None] = {}
        before, after = self._pattern(run, 0), self._pattern(run, 1)
        for entry, slot in zip(before, after, strict=True):
            if slot[0] == "carried":
                made = [*self.steps[run.start + int(slot[1])].arrays][slot[2]]
                pairs[(made, str(entry[1]))] = None
        return tuple(pairs)

    def _best(self, start: int, stop: int) -> _Run | None:
        best: _Run | None = None
        for period in range(1, (stop - start) // 2 + 1):
            for first, length in self._equal_stretches(start, stop, period):
                # Ties go to the shorter period, so what cannot beat the best is not looked at.
                if best is not None and length // period * period <= best.saved:
                    continue
                for run in self._runs(first, length, period):
                    if best is None or self._rank(run) > self._rank(best):
                        best = run
        return best

    def _runs(self, first: int, length: int, period: int) -> Iterator[_Run]:
        """Runs inside a stretch of equal keys; wiring may break it into several."""
        window = first
        while window + period <= first + length:
            reach = window + period
            for phase in range(window, min(window + period, first + length - period + 1)):
                run = _Run(phase, period, self._count(phase, period, first + length + period))
                if run.count > 1:
                    yield run
                reach = max(reach, run.stop)
            window = reach

    def _equal_stretches(self, start: int, stop: int, period: int) -> Iterator[tuple[int, int]]:
        """Where keys equal those one period later: (first position, length of a period or more)."""
        first = start
        for position in range(start, stop - period + 1):
            is_last = position == stop - period
            if is_last or self.keys[position] != self.keys[position + period]:
                if position - first >= period:
                    yield first, position - first
                first = position + 1

    def _rank(self, run: _Run) -> tuple[int, bool, int, int]:
        return (run.saved, self._is_aligned(run), -run.period, -run.start)

    def _is_aligned(self, run: _Run) -> bool:
        """Whether each block's names start with one number of their own, as in "layers.3.norm"."""
        numbers = [
            {
                tuple(NUMBER.findall(step.name)[:1])
                for step in self.steps[first : first + run.period]
            }
            for first in range(run.start, run.stop, run.period)
        ]
        return all(len(own_numbers) == 1 for own_numbers in numbers) and numbers[0] != numbers[1]

    def _count(self, start: int, period: int, stop: int) -> int:
        limit = (stop - start) // period
        run = _Run(start, period, 1)
        seen = set(self._arrays(run, 0))
        while run.count < limit and self._continues(run, run.count, seen):
            seen.update(self._arrays(run, run.count))
            run = _Run(start, period, run.count + 1)
        for block in range(run.count - 1):
            first = start + block * period
            if any(reader >= run.stop for reader in self.last_read[first : first + period]):
                return block + 1
        return run.count

    def _continues(self, run: _Run, block: int, seen: set[str]) -> bool:
        pattern = self._pattern(run, block)
        if block == 1:
            if not _follows(self._pattern(run, 0), pattern):
                return False
        elif pattern != self._pattern(run, 1):
            return False
        shared = self._shared(run, block)
        if block > 1 and shared != self._shared(run, 1):
            return False
        own = (a for a, same in zip(self._arrays(run, block), shared, strict=True) if not same)
        return all(array not in seen for array in own)

    def _arrays(self, run: _Run, block: int) -> list[str]:
        """Arrays of parameters, slot by slot."""
        return [node.source for _, node in self._nodes(run, block) if node.role is not Role.DATA]

    def _shared(self, run: _Run, block: int) -> list[bool]:
        pairs = zip(self._arrays(run, 0), self._arrays(run, block), strict=True)
        return [first == now for first, now in pairs]

    def _nodes(self, run: _Run, block: int) -> Iterator[tuple[int, Node]]:
        first = run.start + block * run.period
        for position in range(first, first + run.period):
            yield from ((position, node) for node in self.slots[position])

    def _pattern(self, run: _Run, block: int) -> list[Slot]:
        first, first_slot = run.start + block * run.period, dict[str, int]()
        slots: list[Slot] = []
        for slot, (_, node) in enumerate(self._nodes(run, block)):
            made, item = self.made.get(node.source, -1), self.item.get(node.source, 0)
            if node.role is not Role.DATA:
                slots.append(("parameter", first_slot.setdefault(node.source, slot), 0))
            elif made >= first:
                slots.append(("own", made - first, item))
            elif block > 0 and made >= first - run.period:
                slots.append(("carried", made - first + run.period, item))
            else:
                slots.append(("outer", node.source, 0))
        return slots


def _follows(first: list[Slot], second: list[Slot]) -> bool:
    """Whether renaming entry values to carried ones turns the first block into the second."""
    renamed: dict[Slot, Slot] = {}
    for before, after in zip(first, second, strict=True):
        is_entry = before[0] == "outer" and after[0] == "carried"
        if not is_entry and before != after:
            return False
        if renamed.setdefault(before, after) != after:
            return False
    return len(dict.fromkeys(renamed.values())) == len(renamed)


def _slot_nodes(body: Body) -> Iterator[Node]:
    # A constant and an operation have no array, and every result in a body is private to it.
    without = (Role.CONSTANT, Role.RESULT, Role.OPERATION)
    if isinstance(body, Box):
        inside = [name for step in body.steps for name in step.arrays]
        nodes = (node for step in body.steps for node in _slot_nodes(step.body))
        return (node for node in nodes if node.source not in inside)
    return (node for node in nodes_of(body) if node.role not in without)


# --- Runs of alike tensors in a chain, such as the middle of a train, drawn as one ----------------


SHORTEST = 4  # tensors that are worth it


@dataclass(frozen=True)
class Run:
    """Tensors that follow each other in a chain, and the name of the one that stands for them."""

    names: tuple[str, ...]
    shown: str


def collapse_runs(diagram: Diagram) -> tuple[Diagram, tuple[Run, ...]]:
    """A diagram for the eye, in which every run of alike tensors is one; not one to compute with.

    Tensors are alike if they differ in numbers only: in their names, and in the names of their
    legs. Inside a run each is joined to the one before and the one after it, and to nothing else.
    The one that stands for them keeps the outer bonds and the open legs of the first.

    Example:
        >>> from rankscope.diagrams.families.catalogue import family
        >>> shorter, runs = collapse_runs(family("tensor-train", order=12, size=4, rank=3))
        >>> len(shorter.nodes), runs[0].names[0], runs[0].names[-1], len(runs[0].names)
        (3, 'G2', 'G11', 10)
    """
    found: list[Run] = []
    for names in _chains(diagram):
        shown = f"{names[0]} to {names[-1]}"
        diagram = _merged(diagram, names, shown)
        found.append(Run(names, shown))
    return diagram, tuple(found)


def _chains(diagram: Diagram) -> Iterator[tuple[str, ...]]:
    """Maximal runs, in order of declaration."""
    neighbours = _neighbours(diagram)
    kinds = {node.name: _kind(diagram, node) for node in diagram.nodes}
    convolved = {index for part in diagram.convolutions for index in part.indices}
    inner = [
        node.name
        for node in diagram.nodes
        if diagram.structure.parent[node.name] is None
        and len(neighbours[node.name]) == 2
        and not convolved & set(node.indices)
    ]
    left = dict.fromkeys(inner)
    while left:
        name = next(iter(left))
        run = [name]
        del left[name]
        for at_end in (True, False):
            while True:
                end = run[-1] if at_end else run[0]
                more = [n for n in neighbours[end] if n in left and kinds[n] == kinds[end]]
                if not more:
                    break
                del left[more[0]]
                run.insert(len(run) if at_end else 0, more[0])
        if len(run) >= SHORTEST and not set(neighbours[run[0]]) <= set(run):
            order = {node.name: place for place, node in enumerate(diagram.nodes)}
            yield tuple(run if order[run[0]] < order[run[-1]] else run[::-1])


def _neighbours(diagram: Diagram) -> dict[str, list[str]]:
    """Tensors that share a wire, and everything else that a wire runs to."""
    found: dict[str, list[str]] = {}
    for node in diagram.nodes:
        others = [
            name
            for index in node.indices
            for name in diagram.structure.owners[index]
            if name != node.name
        ]
        found[node.name] = list(dict.fromkeys(others))
    return found


def _kind(diagram: Diagram, node: Node) -> tuple[object, ...]:
    sizes = diagram.sizes
    legs = tuple((NUMBER.sub("", index), sizes[index]) for index in node.indices)
    return (NUMBER.sub("", node.name), node.role, tuple(sorted(legs, key=str)))


def _merged(diagram: Diagram, names: tuple[str, ...], shown: str) -> Diagram:
    first, last = diagram.node_by_name[names[0]], diagram.node_by_name[names[-1]]
    inside = set(names)
    owners = diagram.structure.owners
    outer = [index for index in last.indices if any(owner not in inside for owner in owners[index])]
    own = [
        index
        for index in first.indices
        if len(set(owners[index])) == 1 or any(owner not in inside for owner in owners[index])
    ]
    stem = NUMBER.sub("", names[0])
    numbers = [NUMBER.findall(name)[-1:] or [""] for name in (names[0], names[-1])]
    label = rf"\mathbf{{{stem}}}_{{{numbers[0][0]}}}\cdots\mathbf{{{stem}}}_{{{numbers[1][0]}}}"
    node = replace(
        first,
        name=shown,
        indices=tuple(dict.fromkeys((*own, *outer))),
        label=label if stem.isalpha() else None,
        array=None,
        rows=None,
        narrow_side=None,
    )
    nodes = tuple(
        node if each.name == names[0] else each
        for each in diagram.nodes
        if each.name == names[0] or each.name not in inside
    )
    convolved = {index for part in diagram.convolutions for index in part.indices}
    used = convolved | {index for each in nodes for index in each.indices}
    return replace(
        diagram,
        nodes=nodes,
        indices=tuple(index for index in diagram.indices if index.name in used),
        output=tuple(index for index in diagram.output if index in used),
    )
