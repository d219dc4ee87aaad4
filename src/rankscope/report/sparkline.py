"""A spectrum the size of a word."""

import math

WIDTH, HEIGHT = 88, 20
NUM_POINTS = 33
# Decades below the largest value; the same for every row, so that rows can be compared.
DECADES = 2


def sparkline(singular_values: tuple[float, ...]) -> str:
    """An SVG of values over the largest on a logarithmic scale; "" where there is nothing."""
    if not singular_values or not 0 < singular_values[0] < math.inf:
        return ""
    last = len(singular_values) - 1
    num_points = min(NUM_POINTS, last + 1)
    points = []
    for point in range(num_points):
        share = point / max(num_points - 1, 1)
        value = singular_values[round(share * last)] / singular_values[0]
        depth = min(-math.log10(value), DECADES) if value > 0 else DECADES
        points.append(f"{1 + share * (WIDTH - 2):.0f} {1 + depth / DECADES * (HEIGHT - 2):.1f}")
    line = "M" + "L".join(points if last else points * 2)
    return (
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<path d="{line}"/></svg>'
    )
