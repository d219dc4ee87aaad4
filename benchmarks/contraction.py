"""A contraction through a prepared diagram, against opt_einsum's prepared expression.

Both contract the same equation in the same order on the same arrays; the module also checks the
shapes of its inputs. Report losses too: below some microseconds of arithmetic, the ratio is that
of two interpreters. Then models at real sizes that were read and are run again, against themselves:
as they are run, and with one line per move, without the calls that `running/fusing.py` makes.
"""

from collections.abc import Iterator
from functools import partial
from unittest.mock import patch

import opt_einsum
import torch
from torch import Tensor, nn

from benchmarks.timing import time_ratio
from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.einsum import from_einsum
from rankscope.diagrams.module import module_arrays, to_module
from rankscope.reading.network import from_module

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


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(2)])

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.norms[0](self.first(inputs)))
        return torch.relu(inputs + self.norms[1](self.second(hidden)))


def models() -> Iterator[tuple[str, nn.Module, tuple[int, ...]]]:
    encoder = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    yield "encoder layer 768", encoder, (4, 128, 768)
    yield "encoder layer 768, 512 positions", encoder, (1, 512, 768)
    yield "residual block of 256 channels", ResidualBlock(256), (4, 256, 14, 14)


def run_models() -> Iterator[dict[str, object]]:
    for name, model, shape in models():
        model.eval()
        inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        network, arrays = from_module(model, inputs), module_arrays(model)
        module = to_module(network, arrays)
        with patch("rankscope.diagrams.source.fused", lambda planned: planned):
            plain = to_module(network, arrays)
        with torch.no_grad():
            torch.testing.assert_close(module(inputs), model(inputs), rtol=1e-4, atol=1e-4)
            call = partial(model, inputs)
            ratio, median = time_ratio(partial(module, inputs), call)
            plain_ratio, _ = time_ratio(partial(plain, inputs), call)
        yield {
            "case": name,
            "time_ratio": round(ratio, 3),
            "time_ratio_one_line_per_move": round(plain_ratio, 3),
            "seconds": round(median, 6),
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
    yield from run_models()
