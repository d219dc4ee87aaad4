"""Files of `torch.save`, sound and malicious, written byte by byte where torch itself would not."""

import io
import pickle
import random
import zipfile
from typing import Any

import torch

from fuzz.damage import damaged_bytes


class Call:
    """In a pickle: a call of any function with any arguments."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._made = function, arguments

    def __reduce__(self) -> Any:
        return self._made


def saved(content: object, *, is_old: bool = False) -> bytes:
    """What `torch.save` writes, since version 1.6 or before."""
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=not is_old)
    return file.getvalue()


def state(draw: random.Random) -> dict[str, Any]:
    """A small state dict with every kind of tensor that a file can hold."""
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    weight = torch.randn(4, 3, generator=generator)
    tensors: dict[str, Any] = {
        "fc.weight": weight,
        "fc.bias": torch.zeros(4),
        "tied.weight": weight,
        "view": weight.T[1:, ::2],
        "counter": torch.tensor(3),
        "half": weight.to(torch.bfloat16),
        "empty": torch.zeros(0, 5),
    }
    names = draw.sample(sorted(tensors), draw.randint(1, len(tensors)))
    chosen = {name: tensors[name] for name in names}
    if draw.random() < 0.3:
        chosen[draw.choice(("\x1b[2Jname", "", "a" * 3000, "x.weight"))] = _odd_tensor(draw, weight)
    if draw.random() < 0.2:
        chosen["more"] = _malice(draw)
    return {"state_dict": chosen, "epoch": 3} if draw.random() < 0.2 else chosen


def _odd_tensor(draw: random.Random, weight: torch.Tensor) -> Any:
    return draw.choice(
        (
            lambda: weight[:1].expand(10**6, 3),
            lambda: weight[0, :1].expand(10**9, 10**9),
            lambda: torch.full((3, 3), float("nan")),
            lambda: torch.full((3, 3), 1e300, dtype=torch.float64),
            lambda: weight.to_sparse(),
            lambda: torch.empty(3, 3, device="meta"),
            lambda: torch.randint(0, 255, (64,), dtype=torch.uint8).view(torch.float64).view(2, 4),
            lambda: weight.to(torch.complex64),
            lambda: torch.ones((1,) * 40),
        )
    )()


def _malice(draw: random.Random) -> Any:
    import os
    import subprocess

    return draw.choice(
        (
            Call(os.system, "touch canary"),
            Call(eval, "open('canary', 'w')"),
            Call(subprocess.Popen, ["touch", "canary"]),
            Call(bytearray, 3_000_000_000),
            Call(bytes, 3_000_000_000),
            Call(getattr, "text", "upper"),
            Call(torch.hub.load, "a/b", "c"),
            Call(list, range(10)),
        )
    )


def torch_file(draw: random.Random) -> bytes:
    """A file of `torch.save`: sound, with a damaged part, or damaged anywhere."""
    data = saved(state(draw), is_old=draw.random() < 0.3)
    kind = draw.randrange(6)
    if kind <= 1:
        return damaged_bytes(data, draw)
    if kind <= 3 and data[:2] == b"PK":
        return _with_damaged_part(data, draw)
    if kind == 4:
        return pickle.dumps(_malice(draw), protocol=draw.choice((0, 2, 4)))
    return data


def _with_damaged_part(data: bytes, draw: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice([*parts, *(one for one in parts if one.endswith("data.pkl"))])
    parts[name] = damaged_bytes(parts[name], draw)
    file = io.BytesIO()
    packing = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(file, "w", packing) as archive:
        for one, content in parts.items():
            archive.writestr(one, content)
    return file.getvalue()
