"""One picture for anything that can be drawn: a diagram, a sum, an equation, a network."""

from dataclasses import replace

from rankscope.diagrams.describing import describe
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout import lay_out
from rankscope.diagrams.layout.placement import NO_HINTS, PLAIN_VIEW, Hints, View
from rankscope.diagrams.network import Body, Drawable, Network, Sum
from rankscope.diagrams.pictures.arrangement import SIGN_GAP, axis, below, beside, named, sign
from rankscope.diagrams.pictures.call_picture import call_picture
from rankscope.diagrams.pictures.network_page import network_page
from rankscope.diagrams.pictures.scene import Scene
from rankscope.errors import LayoutError

WIDEST_LINE = 1400.0


def compose(drawable: Drawable, hints: Hints = NO_HINTS, view: View = PLAIN_VIEW) -> Scene:
    """Lay out a diagram, a sum or a network as one picture that describes itself in words.

    Raises:
        LayoutError: if hints or a cut, which name parts of one diagram, are given for several.
    """
    if not isinstance(drawable, Diagram):
        _refuse_names(drawable, hints, view)
    match drawable:
        case Network():
            scene = network_page(drawable, lambda body: _body_scene(body, hints, view))
        case Sum():
            scene = _sum_scene(drawable, view)
        case Diagram():
            scene = lay_out(drawable, hints, view)
    return _titled(scene, drawable)


def _titled(scene: Scene, drawable: Drawable) -> Scene:
    return replace(
        scene,
        name=drawable.name,
        title=drawable.title or drawable.name,
        description=describe(drawable),
    )


def _refuse_names(drawable: Sum | Network, hints: Hints, view: View) -> None:
    wished = (*hints.positions, *hints.legs, *hints.label_sides, *view.cut)
    if wished:
        raise LayoutError(
            f"Hints and cuts name parts of one diagram, but {drawable.name!r} holds several, so "
            f"{wished[0]!r} could be in any of them. Compose that diagram by itself."
        )


def _body_scene(body: Body, hints: Hints, view: View) -> Scene:
    """A body's picture, its axis at height zero."""
    if isinstance(body, Diagram):
        scene = lay_out(body, hints, view)
        return scene.shifted(0.0, -axis(scene))
    return _sum_scene(body, view) if isinstance(body, Sum) else call_picture(body, view)


def _sum_scene(total: Sum, view: View) -> Scene:
    """Terms with their signs, broken into lines where they would be too wide."""
    lines: list[list[Scene]] = [[]]
    width = 0.0
    for number, term in enumerate(total.terms, start=1):
        picture = named(lay_out(term.diagram, NO_HINTS, view), f"term {number}")
        before = sign_text(term.coefficient, is_first=number == 1)
        parts = [sign(before), picture] if before else [picture]
        wide = sum(part.box[2] - part.box[0] + SIGN_GAP for part in parts)
        if lines[-1] and width + wide > WIDEST_LINE:
            lines.append([])
            width = 0.0
        lines[-1] += parts
        width += wide
    first, *others = [beside(line) for line in lines]
    # The first line keeps its axis, which is where a name and an equals sign would stand.
    return below((first, *others)).shifted(0.0, first.box[1]) if others else first


def sign_text(coefficient: float, *, is_first: bool) -> str:
    r"""What stands before a term of a sum, TeX without dollars.

    Example:
        >>> sign_text(1.0, is_first=True), sign_text(-1.0, is_first=False)
        ('', '-')
        >>> sign_text(-0.5, is_first=True), sign_text(1e-5, is_first=False)
        ('-0.5', '+\\,10^{-5}')
    """
    mark = "-" if coefficient < 0 else "" if is_first else "+"
    size = f"{abs(coefficient):g}"
    if size == "1":
        return mark
    mantissa, _, exponent = size.partition("e")
    if exponent:
        factor = "" if mantissa == "1" else rf"{mantissa}\times "
        size = f"{factor}10^{{{int(exponent)}}}"
    return mark + (r"\," if mark and not is_first else "") + size
