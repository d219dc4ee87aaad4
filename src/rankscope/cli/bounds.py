"""`rankscope bounds`: what theory says for given sizes, without measuring."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rankscope.cli import console
from rankscope.cli.options import Json, Left, Seed, Split, with_network_options
from rankscope.cli.rank import exact_network, split_of
from rankscope.rank.networks.catalogue import CATALOGUE
from rankscope.theorem import Bound


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
    """Published bounds of the separation rank, and our own count beside them."""
    import torch

    # Sizes are all that a theorem needs: on this device weights take no memory.
    with torch.device("meta"):
        network = exact_network("bounds", family, given)
    known = network.known_bounds(split_of(network, partition, left, seed))
    if as_json:
        console.print_json(_document(known))
        return
    rows = [
        ("lower (almost all weights)", known.lower),
        ("upper (published)", known.published),
        ("upper (our count)", known.count),
    ]
    console.print_columns([_row(name, bound) for name, bound in rows], numbers=(1,))


def _document(known: Any) -> dict[str, object]:
    bounds = [bound for bound in (known.lower, known.published, known.count) if bound is not None]
    return {
        "lower_log3": _log3(known.lower),
        "upper_log3": _log3(known.published),
        "count_log3": _log3(known.count),
        "count": None if known.count is None else known.count.value,
        "theorem": str(bounds[0].theorem) if bounds else None,
        "bounds": [bound.to_dict() for bound in bounds],
    }


def _log3(bound: Bound | None) -> float | None:
    return bound.log3 if bound is not None and math.isfinite(bound.log3) else None


def _row(name: str, bound: Bound | None) -> tuple[str, str, str]:
    if bound is None:
        return name, "-", "no theorem covers these sizes"
    return name, f"{bound.relation} {bound.magnitude}", str(bound.theorem)
