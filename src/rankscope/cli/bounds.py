"""`rankscope bounds`: what theory promises for given sizes, without measuring."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.cli import console, networks
from rankscope.cli.options import Json
from rankscope.separation.partition import Partition
from rankscope.theorem import Bound, LowerBound, UpperBound


@dataclass(frozen=True)
class Promises:
    """The bounds shown for a network; None where no theorem applies.

    Args:
        lower: for almost all weights.
        upper: as published.
        count: our own upper bound, for all weights.
    """

    lower: LowerBound | None
    upper: UpperBound | None
    count: UpperBound | None

    def to_dict(self) -> dict[str, object]:
        """The document that machines read."""
        found = [bound for bound in (self.lower, self.upper, self.count) if bound is not None]
        return {
            "lower_log3": _log3(self.lower),
            "upper_log3": _log3(self.upper),
            "count_log3": _log3(self.count),
            "count": None if self.count is None else self.count.value,
            "theorem": str(found[0].theorem) if found else None,
            "bounds": [bound.to_dict() for bound in found],
        }


def run(
    family: networks.Family,
    depth: networks.Depth = None,
    width: networks.Width = None,
    heads: networks.Heads = None,
    head_size: networks.HeadSize = None,
    tokens: networks.Tokens = None,
    embedding_rank: networks.EmbeddingRank = None,
    degree: networks.Degree = None,
    output_position: networks.OutputPosition = None,
    order: networks.Order = None,
    size: networks.Size = None,
    bond: networks.Bond = None,
    equal_cores: networks.EqualCores = False,
    channels: networks.Channels = None,
    window: networks.Window = None,
    templates: networks.Templates = None,
    shared: networks.Shared = False,
    inputs: networks.Inputs = None,
    partition: networks.Split = None,
    left: networks.Left = None,
    seed: networks.Seed = 0,
    as_json: Json = False,
) -> None:
    """Published bounds of the separation rank, and our own count beside them."""
    given = {
        "depth": depth,
        "width": width,
        "heads": heads,
        "head-size": head_size,
        "tokens": tokens,
        "embedding-rank": embedding_rank,
        "degree": degree,
        "output-position": output_position,
        "order": order,
        "size": size,
        "bond": bond,
        "equal-cores": equal_cores,
        "channels": channels,
        "window": window,
        "templates": templates,
        "shared": shared,
        "inputs": inputs,
    }
    request = networks.NetworkRequest.of(family, given)
    promises = promises_of(request, request.partition(partition, left, seed))
    if as_json:
        console.print_json(promises.to_dict())
        return
    rows = [
        ("lower (almost all weights)", promises.lower),
        ("upper (published)", promises.upper),
        ("upper (our count)", promises.count),
    ]
    console.print_columns([_row(name, bound) for name, bound in rows], numbers=(1,))


def promises_of(request: networks.NetworkRequest, split: Partition) -> Promises:
    """The theorems that apply to a network over a partition."""
    if request.family == "attention":
        return _attention(request.options, split)
    import torch

    # Sizes are all that a theorem needs: on this device weights take no memory.
    with torch.device("meta"):
        network = request.build()
    network.require_covered(split)
    return Promises(network.lower_bound(split), None, network.upper_bound(split))


def _attention(options: Mapping[str, int], split: Partition) -> Promises:
    from rankscope.bounds import (
        AttentionSizes,
        counting_upper_bound,
        published_lower_bound,
        published_upper_bound,
    )
    from rankscope.errors import RequestError

    position, count = options.get("output-position", 0), len(split.positions)
    if position >= count:
        raise RequestError(f"--output-position {position} is not one of {count} tokens.")
    own, other = split.left, split.right
    if position in other:
        own, other = other, own
    sizes = AttentionSizes(
        depth=options["depth"],
        width=options["width"],
        heads=options.get("heads", 1),
        head_size=options.get("head-size"),
        embedding_rank=options.get("embedding-rank"),
        own_tokens=len(own),
        other_tokens=len(other),
        degree=options.get("degree", 3),
    )
    return Promises(
        published_lower_bound(sizes), published_upper_bound(sizes), counting_upper_bound(sizes)
    )


def _log3(bound: Bound | None) -> float | None:
    return bound.log3 if bound is not None and math.isfinite(bound.log3) else None


def _row(name: str, bound: Bound | None) -> tuple[str, str, str]:
    if bound is None:
        return name, "-", "no theorem covers these sizes"
    return name, f"{bound.relation} {bound.magnitude}", str(bound.theorem)
