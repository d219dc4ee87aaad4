"""A contraction through a prepared diagram, against opt_einsum's prepared expression.

Both contract the same equation in the same order on the same arrays; the module also checks the
shapes of its inputs. Report losses too: below some microseconds of arithmetic, the ratio is that
of two interpreters.
"""

from collections.abc import Iterator
from functools import partial

import opt_einsum
import torch

from benchmarks.timing import time_ratio
from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.einsum import from_einsum
from rankscope.diagrams.module import to_module

NAME = "contraction"

# Equations with the sizes of their letters.
EQUATIONS: dict[str, tuple[str, dict[str, int]]] = {
    "matrix product": ("ij,jk->ik", {"i": 256, "j": 256, "k": 256}),
    "multi-head scores": (
        "nf,fdh,gdh,mg->nhm",
        {"n": 128, "f": 256, "g": 256, "d": 32, "h": 8, "m": 128},
    ),
    "multi-head values": (
        "nhm,ech,me,och->no",
        {"n": 128, "h": 8, "m": 128, "e": 256, "c": 32, "o": 256},
    ),
    "tensor train": (
        "zabcd,iap,pjbq,qkcr,rld->zijkl",
        {**dict.fromkeys("abcdijkl", 8), **dict.fromkeys("pqr", 16), "z": 16},
    ),
    "cp": ("ir,jr,kr,zijk->zr", {**dict.fromkeys("ijk", 32), "r": 24, "z": 16}),
    "small train": ("ap,pbq,qcr,rd->abcd", {**dict.fromkeys("abcd", 6), **dict.fromkeys("pqr", 5)}),
}


def run() -> Iterator[dict[str, object]]:
    """Check that the two agree, then time them in pairs."""
    torch.set_num_threads(1)
    for name, (equation, sizes) in EQUATIONS.items():
        diagram = from_einsum(equation, sizes=sizes)
        path = plan_contraction(diagram).regions[0].path
        module = to_module(diagram)
        draw = torch.Generator().manual_seed(0)
        shapes = [tuple(sizes[index] for index in node.indices) for node in diagram.nodes]
        arrays = [torch.randn(shape, generator=draw) / shape[-1] ** 0.5 for shape in shapes]
        expression = opt_einsum.contract_expression(equation, *shapes, optimize=path)
        with torch.no_grad():
            torch.testing.assert_close(module(*arrays), expression(*arrays), rtol=1e-4, atol=1e-4)
            ratio, median = time_ratio(
                partial(module, *arrays), partial(expression, *arrays), repeats=201, warm=20
            )
        yield {
            "case": name,
            "equation": equation,
            "time_ratio": round(ratio, 3),
            "seconds": round(median, 6),
        }
