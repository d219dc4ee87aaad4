"""Parameters by part: one bar, and a list that says the same in numbers."""

from dataclasses import asdict

from rankscope.auditing.configuration import Parameters
from rankscope.report.wording import PART_NAMES, percent


def parameters_bar(parameters: Parameters) -> str:
    """A stacked bar with its legend; parts without parameters are left out."""
    counts = {part: count for part, count in asdict(parameters).items() if count}
    if not counts:
        return "<p>There are no parameters.</p>"
    total = parameters.total
    # Tenths of a percent keep the thinnest part visible without bending the others.
    bars = "".join(
        f'<span class="part-{part}" style="flex-grow:{max(count / total, 0.002):.5f}"></span>'
        for part, count in counts.items()
    )
    rows = "\n".join(
        f'<tr><th scope="row"><span class="swatch part-{part}"></span>{PART_NAMES[part]}</th>'
        f"<td>{count:,}</td><td>{percent(count / total)}</td></tr>"
        for part, count in counts.items()
    )
    return (
        f'<div class="bar" aria-hidden="true">{bars}</div>\n'
        f'<table class="legend"><tbody>\n{rows}\n</tbody><tfoot><tr><th scope="row">All</th>'
        f"<td>{total:,}</td><td></td></tr></tfoot></table>"
    )
