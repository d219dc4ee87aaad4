"""`rankscope bounds`: what theory says for given sizes, without measuring.

The best proved interval stands first, then every other theorem that applies; one that does not
is left out. Numbers are rounded outwards, so that what is printed holds as well.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankscope.cli import console
from rankscope.cli.options import Json, Left, Seed, Split, with_network_options
from rankscope.cli.rank import exact_network, split_of
from rankscope.rank.networks.catalogue import CATALOGUE
from rankscope.theorem import Bound, LowerBound

if TYPE_CHECKING:
    from rankscope.rank.bounds.known import KnownBounds


@with_network_options
def run(
    family: Annotated[
        str, typer.Argument(metavar="FAMILY", help=f"{', '.join(CATALOGUE)}.", show_default=False)
    ],
    given: Mapping[str, Any],
    partition: Split = None,
    left: Left = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """The best proved bounds of the separation rank, and every theorem that applies."""
    import torch

    # Sizes are all that a theorem needs: on this device weights take no memory.
    with torch.device("meta"):
        network = exact_network("bounds", family, given)
    known = network.known_bounds(split_of(network, partition, left, seed))
    if as_json:
        console.print_json(_document(known))
        return
    rows = _rows(known)
    if not rows:
        print("no theorem covers these sizes")
        return
    console.print_columns(rows)


def _document(known: "KnownBounds") -> dict[str, object]:
    best = {"best_lower": known.best_lower, "best_upper": known.best_upper}
    # Kept from before there was a best bound: the first of these three that applies.
    named = [each for each in (known.lower, known.published, known.count) if each is not None]
    return {
        **{name: None if bound is None else bound.integer for name, bound in best.items()},
        **{
            f"{name}_log3": None if bound is None else bound.outward_log3
            for name, bound in best.items()
        },
        "lower_log3": _log3(known.lower),
        "upper_log3": _log3(known.published),
        "count_log3": _log3(known.count),
        "count": None if known.count is None else known.count.value,
        "theorem": str(named[0].theorem) if named else None,
        "bounds": [bound.to_dict() for bound in known.bounds],
        "growths": [growth.to_dict() for growth in known.growths],
    }


def _log3(bound: Bound | None) -> float | None:
    return bound.log3 if bound is not None and math.isfinite(bound.log3) else None


def _rows(known: "KnownBounds") -> list[tuple[str, str, str]]:
    best = [bound for bound in (known.best_lower, known.best_upper) if bound is not None]
    rows = [_row("best proved", bound) for bound in best]
    rows += [_row("also", bound) for bound in known.bounds if bound not in best]
    return rows + [
        ("also", f"{growth.statement}, which bounds no number", str(growth.theorem))
        for growth in known.growths
    ]


def _row(name: str, bound: Bound) -> tuple[str, str, str]:
    where = " for almost all weights" if isinstance(bound, LowerBound) else ""
    return name, f"{bound.statement}{where}", str(bound.theorem)
