"""The plane of depths and widths: the fitted law, the model, and the law's model of its size."""

import math
from dataclasses import dataclass
from html import escape

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.law import LEVINE, SQUARES_PER_BLOCK, DepthLaw, parameters_in_blocks
from rankscope.report.wording import spoken_count

WIDTH, HEIGHT = 520.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 14.0, 14.0, 44.0
NUM_STEPS = 48


@dataclass(frozen=True)
class Axes:
    """Depth from left to right, the logarithm of the width from bottom to top."""

    deepest: float
    narrowest: float
    widest: float

    def x(self, depth: float) -> float:
        """Pixels from the left."""
        return LEFT + (WIDTH - LEFT - RIGHT) * depth / self.deepest

    def y(self, width: float) -> float:
        """Pixels from the top, kept inside the frame."""
        height = math.log(width / self.narrowest) / math.log(self.widest / self.narrowest)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(max(height, 0.0), 1.0)

    def point(self, depth: float, width: float) -> str:
        """Both, as SVG writes them."""
        return f"{self.x(depth):.1f} {self.y(width):.1f}"


def depth_width_plane(configuration: Configuration, law: DepthLaw = LEVINE) -> str:
    """An SVG with a caption; "" for a model whose blocks have no parameters."""
    parameters = parameters_in_blocks(configuration)
    if parameters < 1:
        return ""
    best = law.best_depth(float(parameters))
    best_depth = max(1, round(best.real))
    best_width = math.sqrt(parameters / (SQUARES_PER_BLOCK * best_depth))
    depths = (configuration.depth, best_depth, law.depths[1])
    widths = (
        float(configuration.width),
        best_width,
        *(law.width(float(depth)) for depth in law.depths),
    )
    axes = Axes(1.15 * max(depths), min(widths) / 2, max(widths) * 2)
    size = f"{spoken_count(parameters)} parameters in blocks"
    caption = (
        f"With {size} the law's depth is {best.real:.1f} ({best.low:.1f} to {best.high:.1f} "
        f"within its standard errors); this model has {configuration.depth}. "
        f"A law, not a theorem: fitted on {law.data}. {law.reference}."
    )
    label = (
        f"Depth against width. This model: depth {configuration.depth}, width "
        f"{configuration.width:,}. The law's model of its size: depth {best_depth}, width "
        f"{best_width:,.0f}."
    )
    # The higher point has its label above and the lower one below, so that they do not meet.
    is_wider = best_width > configuration.width
    law_text = f"the law: {best_depth} × {best_width:,.0f}"
    own_text = f"this model: {configuration.depth} × {configuration.width:,}"
    own = (configuration.depth, float(configuration.width))
    marks = (
        _mark(axes, (best_depth, best_width), "best", law_text, is_above=is_wider),
        _mark(axes, own, "model", own_text, is_above=not is_wider),
    )
    picture = "\n".join((_frame(axes), _law(axes, law), _equals(axes, parameters), *marks))
    return (
        f'<figure class="plane"><svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" '
        f'aria-label="{escape(label)}">\n{picture}\n</svg>\n'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _frame(axes: Axes) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    step = next(step for step in (4, 8, 16, 32, 64, 10**9) if axes.deepest / step <= 9)
    parts = [f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>']
    for depth in range(0, int(axes.deepest) + 1, step):
        x = axes.x(float(depth))
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{depth}</text>'
        )
    powers = range(math.ceil(math.log2(axes.narrowest)), int(math.log2(axes.widest)) + 1)
    for power in powers[:: 1 if len(powers) <= 8 else 2]:
        y = axes.y(float(2**power))
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{2**power:,}</text>"
        )
    middle = (LEFT + right) / 2
    parts.append(
        f'<text class="name" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">depth</text>'
    )
    parts.append(
        f'<text class="name" transform="translate(12 {(TOP + bottom) / 2}) rotate(-90)" '
        'text-anchor="middle">width</text>'
    )
    return "\n".join(parts)


def _law(axes: Axes, law: DepthLaw) -> str:
    depths = [axes.deepest * step / NUM_STEPS for step in range(NUM_STEPS + 1)]
    upper = [axes.point(depth, law.shifted(1.0).width(depth)) for depth in depths]
    lower = [axes.point(depth, law.shifted(-1.0).width(depth)) for depth in reversed(depths)]
    fitted = [axes.point(float(depth), law.width(float(depth))) for depth in law.depths]
    far = axes.point(axes.deepest, law.width(axes.deepest))
    near = axes.point(0.0, law.width(0.0))
    return (
        f'<path class="band" d="M{"L".join(upper + lower)}Z"/>\n'
        f'<path class="law outside" d="M{near}L{fitted[0]}M{fitted[1]}L{far}"/>\n'
        f'<path class="law" d="M{"L".join(fitted)}"/>\n'
        f'<text class="regime" x="{LEFT + 12}" y="{TOP + 18}">wide: deepen first</text>\n'
        f'<text class="regime" x="{WIDTH - RIGHT - 8}" y="{HEIGHT - BOTTOM - 12}" '
        'text-anchor="end">deep: widen first</text>'
    )


def _equals(axes: Axes, parameters: int) -> str:
    """Ordinary models with as many parameters."""
    points = []
    for step in range(1, 4 * NUM_STEPS + 1):
        depth = axes.deepest * step / (4 * NUM_STEPS)
        width = math.sqrt(parameters / (SQUARES_PER_BLOCK * depth))
        if axes.narrowest <= width <= axes.widest:
            points.append(axes.point(depth, width))
    return f'<path class="equal" d="M{"L".join(points)}"/>' if len(points) > 1 else ""


def _mark(axes: Axes, place: tuple[int, float], style: str, text: str, *, is_above: bool) -> str:
    x, y = axes.x(float(place[0])), axes.y(place[1])
    is_right = x > WIDTH * 0.6
    dy = -10 if is_above else 19
    return (
        f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>\n'
        f'<text class="mark {style}" x="{x + (-4 if is_right else 4):.1f}" y="{y + dy:.1f}" '
        f'text-anchor="{"end" if is_right else "start"}">{escape(text)}</text>'
    )
