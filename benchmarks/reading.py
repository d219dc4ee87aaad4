"""Models of other libraries at real sizes: how long reading them takes, and running what was read.

Each model is traced (`torch.export`), read as a network, and run again by `to_module` against
itself, in processor time and in pairs. Limits: reading at most 15 s with at most 3 s of
our own, running at most 1.10 times as long. Needs torchvision, timm and transformers.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from benchmarks.timing import processor_time_ratio
from rankscope.diagrams.module import module_arrays, to_module
from rankscope.reading.network import from_trace
from rankscope.reading.trace import trace

NAME = "reading"
IMAGES = (2, 3, 224, 224)
POSITIONS = 128


def _torchvision(name: str) -> nn.Module:
    # A wheel without compiled operators names these two when it is imported.
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        with suppress(RuntimeError):
            library.define(  # type: ignore[no-untyped-call]
                f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
    import torchvision  # type: ignore[import-untyped]

    made: nn.Module = torchvision.models.get_model(name, weights=None)
    return made


def _timm(name: str) -> nn.Module:
    import timm

    made: nn.Module = timm.create_model(name, pretrained=False)
    return made


def _transformers(model: str, config: str) -> nn.Module:
    import transformers

    made: nn.Module = getattr(transformers, model)(getattr(transformers, config)())
    return made


def models() -> Iterator[tuple[str, Callable[[], nn.Module], Any]]:
    """Names, how they are made, and examples."""
    draw = torch.Generator().manual_seed(0)
    image = torch.rand(IMAGES, generator=draw)
    words = torch.randint(3, 200, (2, POSITIONS), generator=draw)
    padding = torch.ones_like(words)
    padding[1, POSITIONS // 2 :] = 0
    for name in ("resnet50", "swin_t", "vit_b_16", "convnext_tiny", "mobilenet_v3_small"):
        yield name, partial(_torchvision, name), image
    yield "mixer_s32_224", partial(_timm, "mixer_s32_224"), image
    bert = partial(_transformers, "BertModel", "BertConfig")
    yield "BERT of 12 layers", bert, {"input_ids": words}
    given = {"input_ids": words, "attention_mask": padding}
    yield "BERT of 12 layers, padded", bert, given


def run() -> Iterator[dict[str, object]]:
    """Check that a model and what was read of it agree, then time them."""
    torch.set_num_threads(1)
    for name, make, example in models():
        torch.manual_seed(0)
        model = make().eval()
        arrays = module_arrays(model)
        started = time.process_time()
        traced = trace(model, example)
        exported = time.process_time()
        network = from_trace(traced, arrays)
        read = time.process_time()
        module = to_module(network, arrays)
        arguments = (example,) if isinstance(example, Tensor) else ()
        named = {} if arguments else example
        with torch.no_grad():
            first, second = (tree_leaves(each(*arguments, **named)) for each in (module, model))
            torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-4)
            ratio, median = processor_time_ratio(
                partial(module, *arguments, **named), partial(model, *arguments, **named)
            )
        yield {
            "case": name,
            "time_ratio": round(ratio, 3),
            "seconds": round(median, 4),
            "export_seconds": round(exported - started, 2),
            "reading_seconds": round(read - exported, 3),
        }
