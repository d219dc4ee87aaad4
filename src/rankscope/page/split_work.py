"""What worker processes do for the split view: cuts and bounds at once, exact ranks measured."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rankscope.budget import require_within
from rankscope.errors import RequestError
from rankscope.models import open_model
from rankscope.progress import Report

MOST_WEIGHTS = 2**24  # of a network that a page measures
MOST_POSITIONS = 256
DEFAULT_SIZE = 3  # of an index of a diagram for which nobody chose one


@dataclass(frozen=True, eq=False)
class Subject:
    """What is split: a network whose exact rank can be measured, or a diagram by its legs.

    Args:
        positions: what each place that can be marked is called.
        left: those on the left at first.
        network: None if only the diagram is known.
        drawable: its picture.
        legs: the open legs of a diagram that stand for the positions; empty if it has none.
    """

    positions: tuple[str, ...]
    left: tuple[int, ...]
    network: Any
    drawable: Any
    legs: tuple[str, ...]


def subject(name: str, settings: Mapping[str, str], *, is_on_meta: bool = True) -> Subject:
    """Open a network or a diagram by its name.

    Raises:
        RankscopeError: if there is none, a setting does not fit, or it has no legs to be split.
    """
    import torch

    from rankscope.rank.networks.catalogue import CATALOGUE, require_buildable
    from rankscope.rank.partition import Partition

    if name not in CATALOGUE:
        return _diagram_subject(name, settings)
    entry = CATALOGUE[name]
    arguments = _arguments(name, settings)
    require_buildable("split", name, arguments)
    with torch.device("meta"):
        network = entry.network_class()(**arguments)
    count = sum(parameter.numel() for parameter in network.parameters())
    require_within(f"split {name}", "the number of weights", count, MOST_WEIGHTS)
    require_within(
        f"split {name}", "the number of positions", network.num_positions, MOST_POSITIONS
    )
    if not is_on_meta:
        network = entry.network_class()(**arguments)
    drawable, legs = _opened_diagram(network.diagram(), network.num_positions)
    makers = {
        "interleaved": Partition.interleaved,
        "left-right": Partition.left_right,
        "start-end": Partition.start_end,
    }
    left = makers[network.default_partition](network.num_positions).left
    names = tuple(str(place) for place in range(network.num_positions))
    return Subject(names, left, network, drawable, legs)


def _arguments(name: str, settings: Mapping[str, str]) -> dict[str, Any]:
    from rankscope.rank.networks.catalogue import CATALOGUE, read_settings

    given = {word: text for word, text in settings.items() if text != ""}
    return read_settings(name, given) if given else dict(CATALOGUE[name].example)


def _diagram_subject(name: str, settings: Mapping[str, str]) -> Subject:
    from rankscope.diagrams.diagram import Diagram

    given = {word: text for word, text in settings.items() if text != ""}
    opened = open_model(name, settings=given)
    opened.require_for("cut")
    if opened.kind not in ("einsum", "family of diagrams", "diagram"):
        raise RequestError(f"{name!r} is a {opened.kind}; a split takes a diagram with open legs.")
    diagram = opened.diagram
    if not isinstance(diagram, Diagram) or len(diagram.output) < 2:
        raise RequestError(f"A split needs one diagram with two open legs; {name!r} is none.")
    missing = {symbol: DEFAULT_SIZE for symbol, size in diagram.symbols.items() if size is None}
    diagram = diagram.with_sizes(**missing)
    legs = diagram.output
    half = tuple(range((len(legs) + 1) // 2))
    return Subject(legs, half, None, diagram, legs)


def _opened_diagram(drawable: Any, num_positions: int) -> tuple[Any, tuple[str, ...]]:
    """The network without its inputs, whose legs are then open; or as it is, without legs."""
    from rankscope.diagrams.diagram import Diagram
    from rankscope.diagrams.parts import Role

    if not isinstance(drawable, Diagram):
        return drawable, ()
    inputs = [node for node in drawable.nodes if node.role is Role.DATA]
    if len(inputs) != num_positions or any(len(node.indices) != 1 for node in inputs):
        return drawable, ()
    legs = tuple(node.indices[0] for node in inputs)
    rest = tuple(node for node in drawable.nodes if node.role is not Role.DATA)
    return replace(drawable, nodes=rest, output=(*legs, *drawable.output)), legs


# --- Tasks ----------------------------------------------------------------------------------------


def describe(arguments: Mapping[str, Any], report: Report, part: Any) -> dict[str, object]:
    """Positions of a subject, and those on the left at first."""
    opened = subject(arguments["name"], arguments["settings"])
    if opened.network is not None:
        settings = _written(arguments["name"], arguments["settings"])
    else:
        sizes = opened.drawable.symbols.items()
        settings = {symbol: str(size) for symbol, size in sizes}
    return {
        "positions": list(opened.positions),
        "left": list(opened.left),
        "has_exact_rank": opened.network is not None,
        "has_cut": bool(opened.legs),
        "settings": settings,
    }


def _written(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings in force, by the words that write them."""
    from rankscope.rank.networks.catalogue import CATALOGUE

    known = _arguments(name, settings)
    words = {setting: word for word, setting in CATALOGUE[name].options.items()}
    return {words[key]: _text(value) for key, value in known.items() if key in words}


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        mark = ";" if value and isinstance(value[0], tuple | list) else ","
        return mark.join(map(_text, value))
    return str(value)


def split(arguments: Mapping[str, Any], report: Report, part: Any) -> dict[str, object]:
    """The minimal cut with its picture, and every bound that a theorem gives."""
    from rankscope.drawing.page import compose
    from rankscope.drawing.svg import to_svg

    opened = subject(arguments["name"], arguments["settings"])
    left, right = _sides(opened, arguments["left"])
    cut = _cut(opened, left, right)
    scene = compose(opened.drawable, view=_view(cut))
    answer: dict[str, object] = {
        "svg": to_svg(scene, prefix="split-"),
        "cut": None if cut is None else cut.to_dict(),
        "bounds": [],
        "best_lower": None,
        "best_upper": None,
    }
    if opened.network is None:
        return answer
    known = opened.network.known_bounds(_partition(opened, left))
    best = {"best_lower": known.best_lower, "best_upper": known.best_upper}
    bounds = [(bound.statement, str(bound.theorem)) for bound in known.bounds]
    return answer | {
        "bounds": [list(pair) for pair in bounds],
        **{key: None if bound is None else bound.statement for key, bound in best.items()},
    }


def _sides(opened: Subject, left: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    places = range(len(opened.positions))
    chosen = tuple(sorted(set(left)))
    right = tuple(place for place in places if place not in set(chosen))
    if not chosen or not right or any(place not in places for place in chosen):
        raise RequestError(
            f"Both sides need at least one of the {len(opened.positions)} positions, got "
            f"{len(chosen)} on the left."
        )
    return chosen, right


def _cut(opened: Subject, left: tuple[int, ...], right: tuple[int, ...]) -> Any:
    from rankscope.diagrams.cuts import minimal_cut

    if not opened.legs:
        return None
    sides = [tuple(opened.legs[place] for place in side) for side in (left, right)]
    return minimal_cut(opened.drawable, *sides)


def _view(cut: Any) -> Any:
    from rankscope.drawing.layout.placement import View

    return View(show_sizes=True) if cut is None else View(show_sizes=True, cut=cut.indices)


def _partition(opened: Subject, left: tuple[int, ...]) -> Any:
    from rankscope.rank.partition import Partition

    return Partition.of(left, order=len(opened.positions))


def figure(arguments: Mapping[str, Any], report: Report, part: Any) -> bytes:
    """The picture of a split as a file."""
    from rankscope.drawing.drawing import WRITERS, PictureSource
    from rankscope.drawing.layout.placement import Hints
    from rankscope.drawing.themes import LIGHT

    opened = subject(arguments["name"], arguments["settings"])
    cut = _cut(opened, *_sides(opened, arguments["left"]))
    picture = PictureSource(opened.drawable, LIGHT, _view(cut), Hints(), steps=False)
    return WRITERS[arguments["ending"]](picture)


def measure(arguments: Mapping[str, Any], report: Report, part: Any) -> dict[str, object]:
    """The exact rank, with a certificate that `rankscope verify` accepts."""
    from rankscope.rank.certificate_file import to_json
    from rankscope.rank.measured import MeasureOptions
    from rankscope.rank.measuring import measure_rank
    from rankscope.rank.verification import certify_rank

    opened = subject(arguments["name"], arguments["settings"], is_on_meta=False)
    if opened.network is None:
        raise RequestError(f"{arguments['name']!r} is a diagram; only networks have exact ranks.")
    left, _ = _sides(opened, arguments["left"])
    partition = _partition(opened, left)
    options = MeasureOptions(seed=arguments["seed"], report=report)
    measured = measure_rank(opened.network, partition, options)
    certificate = certify_rank(opened.network, partition, measured, report=report)
    return {
        "text": str(measured),
        "rank": measured.lower,
        "is_exact": measured.is_exact,
        "upper": None if measured.upper is None else str(measured.upper),
        "left": list(left),
        "statement": certificate.statement,
        "certificate": to_json(certificate),
    }
