"""Properties of a CP-VGG-16 in the triangle form, over one plain forward pass of the same network.

The properties are everything that a rank search needs: reading the network, the norms of all
inputs of layers on every sample, t and ξ of all ranks, and the ranks themselves. The check of the
compressed network and the Jacobians of Arora et al. are timed apart, the latter on few samples.
Images are random; peak memory is that of a fresh process that measures the properties.

    OMP_NUM_THREADS=2 python -c "from benchmarks.generalization import run; print(*run(500))"
"""

import subprocess
import sys
from collections.abc import Iterator

import torch
from torch import nn

from benchmarks.peak_memory import peak_mebibytes
from benchmarks.timing import seconds
from rankscope.generalize.arora import measure_noise_stability
from rankscope.generalize.compressed_network import compressed_network, outputs_of
from rankscope.generalize.layer_trace import (
    Activations,
    LayerTrace,
    measure_activations,
    trace_layers,
)
from rankscope.generalize.rank_search import RankChoice, find_ranks
from rankscope.generalize.sample import Sample
from rankscope.networks.catalogue import build
from rankscope.networks.cp_networks import in_cp_form

NAME = "generalization"
SAMPLES = 5_000
FEW = 8  # for Jacobians
IMAGE = (3, 32, 32)


def network() -> nn.Module:
    torch.manual_seed(0)
    model = in_cp_form(build("cp-vgg16-bn")).eval()
    return model.requires_grad_(requires_grad=False)


def images(count: int) -> Sample:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, *IMAGE, generator=generator)
    return Sample(inputs, torch.randint(10, (count,), generator=generator))


def properties(model: nn.Module, sample: Sample) -> tuple[LayerTrace, Activations, RankChoice]:
    trace = trace_layers(model, IMAGE)
    activations = measure_activations(trace, sample)
    return trace, activations, find_ranks(trace, activations, 1.0)


def run(samples: int = SAMPLES) -> Iterator[dict[str, object]]:
    """Check that the outputs agree, then time them, each after the other."""
    model, sample = network(), images(samples)
    small = images(4)
    trace, activations, choice = properties(model, small)
    torch.testing.assert_close(activations.outputs, outputs_of(model, small.inputs))
    plain = seconds(lambda: outputs_of(model, sample.inputs))
    ours = seconds(lambda: properties(model, sample))
    smaller = compressed_network(model, trace, choice.ranks)
    yield {
        "case": "cp-vgg16-bn, triangle form",
        "samples": samples,
        "forward_s": round(plain, 2),
        "properties_s": round(ours, 2),
        "over_forward": round(ours / plain, 3),
        "peak_MiB": peak_memory(samples),
    }
    yield {
        "case": "check of the compressed network",
        "samples": samples,
        "s": round(seconds(lambda: outputs_of(smaller, sample.inputs)), 2),
    }
    few = images(FEW)
    yield {
        "case": "Jacobians",
        "samples": FEW,
        "s": round(seconds(lambda: measure_noise_stability(trace, few)), 2),
    }


def peak_memory(samples: int) -> int:
    code = f"from benchmarks.generalization import main; main({samples})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def main(samples: int) -> None:
    torch.set_num_threads(1)
    properties(network(), images(samples))
    print(round(peak_mebibytes()))
