"""Inputs of every kind: files that commands open, einsum strings, and options of all commands."""

import contextlib
import io
import json
import random
import string
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors.torch import save as save_safetensors

from fuzz.case import Case
from fuzz.damage import HUGE, ODD_NUMBERS, ODD_TEXTS, damaged_bytes, damaged_document
from fuzz.page_requests import draw_request
from fuzz.pickles import torch_file
from fuzz.seeds import CERTIFICATES, seed

Drawn = tuple[list[str], dict[str, bytes]]


def case_of(seed_number: int, number: int) -> Case:
    """The same case for the same two numbers."""
    name = f"{seed_number}:{number}"
    draw = random.Random(name)
    make = draw.choices(list(KINDS), list(KINDS.values()))[0]
    words, files = make(draw)
    if draw.random() < 0.3 and words[0] not in ("code", "draw", "request"):
        words.append("--json")
    return Case(name, tuple(words), files)


# --- Configurations -------------------------------------------------------------------------------

CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {
        "model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 8,
        "vocab_size": 20,
    },
    {
        "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 30,
        "tie_word_embeddings": False, "rms_norm_eps": 1e-6,
    },
    {
        "model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 24, "vocab_size": 30, "max_position_embeddings": 8,
        "type_vocab_size": 2,
    },
    {
        "model_type": "t5", "d_model": 16, "d_ff": 24, "d_kv": 4, "num_heads": 4, "num_layers": 2,
        "vocab_size": 30, "relative_attention_num_buckets": 8,
    },
    {
        "model_type": "mixtral", "hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 30,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
        "num_local_experts": 4, "num_experts_per_tok": 2,
    },
)  # fmt: skip


def _configuration(draw: random.Random) -> Drawn:
    data = damaged_document(draw.choice(CONFIGURATIONS), draw)
    if draw.random() < 0.2:
        return ["plan", "--params", "1e7", "--compare", "config.json"], {"config.json": data}
    words = ["audit", "config.json"]
    if draw.random() < 0.1:
        words += ["--family", draw.choice(("gpt2", "llama", "nonsense", "\x1b[2J"))]
    if draw.random() < 0.05:
        words += ["-o", "out"]
    return words, {"config.json": data}


# --- Tensors --------------------------------------------------------------------------------------


def _safetensors(draw: random.Random) -> bytes:
    names = draw.sample(("fc.weight", "fc.bias", "conv.weight", "\x1b[31m", "", "a" * 999), 2)
    shapes = draw.choices(((3, 4), (4,), (2, 2, 3, 3), (0, 3), ()), k=2)
    tensors = {name: torch.ones(shape) for name, shape in zip(names, shapes, strict=True)}
    data = save_safetensors(tensors)
    if draw.random() < 0.5:
        return damaged_bytes(data, draw)
    length = int.from_bytes(data[:8], "little")
    header = damaged_document(json.loads(data[8 : 8 + length]), draw)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def _npz(draw: random.Random) -> bytes:
    file = io.BytesIO()
    inputs = numpy.ones(
        (draw.choice((0, 1, 5)), 1, 8, 8), draw.choice(("float32", "float64", ">f4", "i8"))
    )
    labels = numpy.zeros(len(inputs), draw.choice(("int64", "uint8", "float32")))
    arrays = draw.choice(({"inputs": inputs, "labels": labels}, {"inputs": inputs}, {"x": labels}))
    if draw.random() < 0.1:
        arrays["more"] = numpy.array([{}], dtype=object)
    (numpy.savez_compressed if draw.random() < 0.5 else numpy.savez)(file, **arrays)
    return damaged_bytes(file.getvalue(), draw) if draw.random() < 0.8 else file.getvalue()


def _weights(draw: random.Random) -> Drawn:
    kinds: tuple[tuple[str, Callable[[random.Random], bytes]], ...] = (
        ("model.safetensors", _safetensors),
        ("model.pt", torch_file),
        ("model.bin", torch_file),
        ("model.npz", _npz),
    )
    name, make = draw.choice(kinds)
    files = {name: make(draw)}
    if draw.random() < 0.7:
        return ["audit", name], files
    return ["compress", "digits", "--weights", name, "--dry-run"], files


def _samples(draw: random.Random) -> Drawn:
    name, data = draw.choice((("data.npz", _npz(draw)), ("data.safetensors", _safetensors(draw))))
    if draw.random() < 0.5:
        return ["compress", "digits", "--data", name, "--dry-run"], {name: data}
    command = draw.choice(("certify", "certify", "generalization"))
    words = [command, "digits", "--data", name]
    return [*words, *(("--steps", "1") if command == "certify" else ("--jacobians", "0"))], {
        name: data
    }


def _shards(draw: random.Random) -> Drawn:
    index = {"weight_map": {"fc.weight": "a.safetensors", "fc.bias": "b.safetensors"}}
    parts = {
        "a.safetensors": save_safetensors({"fc.weight": torch.ones(3, 4)}),
        "b.safetensors": save_safetensors({"fc.bias": torch.ones(3)}),
    }
    files = {"model.safetensors.index.json": damaged_document(index, draw), **parts}
    return ["audit", "."], files


_EDGES = b"# vertices\n0 1\n1 2\n2,3\n0\t3\n4\n"
_TABLE = b"a,b,c,d,class\n1,2,3,4,0\n2,1,5,3,1\n0.5,7,1,2,0\n3,3,2,9,1\n"


def _tables(draw: random.Random) -> Drawn:
    """Files of edges, and data sets."""
    if draw.random() < 0.5:
        commands = (
            "sparsify edges.txt --depth 3",
            "sparsify edges.txt --rule spectral -o kept.txt",
            "rank graph --edges edges.txt --depth 2 --width 2 --left 0",
            "bounds graph --edges edges.txt --depth 3 --width 4 --left 0,1 --vertex 1",
            "draw graph --set edges=edges.txt --set depth=1 --set width=2 -o g.svg",
        )
        return draw.choice(commands).split(), {"edges.txt": damaged_bytes(_EDGES, draw)}
    name, data = draw.choice(
        (("d.csv", damaged_bytes(_TABLE, draw)), ("d.npz", _npz(draw)), ("d.bin", _npz(draw)))
    )
    words = ["entanglement", name]
    if draw.random() < 0.5:
        words += ["--label", draw.choice(("class", "-1", "9", "nonsense"))]
    return [*words, *(("-o", "o.npz") if draw.random() < 0.3 else ())], {name: data}


def _npy(draw: random.Random) -> bytes:
    file = io.BytesIO()
    shape = draw.choice(((2, 2, 2), (2, 3, 2), (2, 2), (1,), (0, 2, 2), ()))
    numpy.save(file, numpy.ones(shape, draw.choice(("float32", "float64", "int64", "complex64"))))
    return damaged_bytes(file.getvalue(), draw) if draw.random() < 0.8 else file.getvalue()


def _tensors(draw: random.Random) -> Drawn:
    """One tensor whose CP rank is asked for, and two files of weights to be compared."""
    if draw.random() < 0.5:
        name, make = draw.choice((("t.npy", _npy), ("t.safetensors", _safetensors)))
        return ["cp-rank", name], {name: make(draw)}
    return ["diff", "a.safetensors", "b.safetensors"], {
        "a.safetensors": _safetensors(draw),
        "b.safetensors": save_safetensors(
            {"fc.weight": torch.ones(3, 4), "fc.bias": torch.ones(4)}
        ),
    }


@cache
def _runtime_files() -> dict[str, bytes]:
    """A sound GGUF file and a sound ONNX file, where their packages are installed."""
    held = {"w.gguf": b"GGUF\x03\0\0\0", "w.onnx": b"\x08\x08\x12\0"}
    with contextlib.suppress(ImportError):
        import gguf

        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/w.gguf"
            writer = gguf.GGUFWriter(path, "llama")
            writer.add_tensor("blk.0.attn_q.weight", numpy.ones((4, 8), "float32"))
            writer.add_tensor("output.weight", numpy.ones((6, 4), "float16"))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            held["w.gguf"] = Path(path).read_bytes()
    with contextlib.suppress(ImportError):
        from onnx import helper, numpy_helper

        weight = numpy_helper.from_array(numpy.ones((3, 4), "float32"), "fc.weight")
        graph = helper.make_graph([], "g", [], [], initializer=[weight])
        held["w.onnx"] = helper.make_model(graph).SerializeToString()
    return held


def _runtime(draw: random.Random) -> Drawn:
    name, data = draw.choice(list(_runtime_files().items()))
    return ["audit", name], {name: damaged_bytes(data, draw)}


_CAMPAIGN = b"""[[experiments]]
name = "tt-digits"
only = ["nothing"]
[[experiments]]
name = "degree-budget"
hours = 2
seeds = 1
"""
_PROMPTS = b"one two three\nfour\n"


def _lists(draw: random.Random) -> Drawn:
    """Campaigns, which are only shown, and what models are evaluated on."""
    if draw.random() < 0.6:
        words = ["experiment", "campaign", "c.toml", "-o", "out", "--show"]
        return words, {"c.toml": damaged_bytes(_CAMPAIGN, draw)}
    if draw.random() < 0.5:
        return ["evaluate", "digits", "--data", "d.npz"], {"d.npz": _npz(draw)}
    return ["evaluate", "digits", "--text", "t.txt"], {"t.txt": damaged_bytes(_PROMPTS, draw)}


# --- Certificates, plans and diagrams -------------------------------------------------------------


def _certificate(draw: random.Random) -> Drawn:
    data = seed(draw.choice(CERTIFICATES))
    is_document = draw.random() < 0.8
    changed = damaged_document(json.loads(data), draw) if is_document else damaged_bytes(data, draw)
    return ["verify", "certificate.json"], {"certificate.json": changed}


def _plan(draw: random.Random) -> Drawn:
    plan, weights = seed("compressed/plan.json"), seed("compressed/model.safetensors")
    if draw.random() < 0.7:
        plan = damaged_document(json.loads(plan), draw)
    else:
        weights = damaged_bytes(weights, draw)
    command = draw.choice((["audit", "m"], ["compress", "m", "--dry-run"]))
    return command, {"m/plan.json": plan, "m/model.safetensors": weights}


@cache
def _diagrams() -> tuple[dict[str, Any], ...]:
    from rankscope.diagrams.einsum import from_einsum
    from rankscope.diagrams.families.catalogue import build_family
    from rankscope.diagrams.serialization import to_dict

    families = ("multi-head", "cp", "mlp", "sum-of-pure-tensors", "tucker2-conv")
    made: list[dict[str, Any]] = [to_dict(from_einsum("ij,jk->ik", sizes={"i": 2, "j": 3, "k": 4}))]
    made += [to_dict(build_family(name, {})) for name in families]
    return tuple(made)


def _diagram(draw: random.Random) -> Drawn:
    data = damaged_document(draw.choice(_diagrams()), draw)
    command = draw.choice(
        (["cost", "d.json"], ["draw", "d.json", "-o", "d.svg"], ["draw", "d.json", "-o", "d.tikz"],
         ["code", "d.json"], ["cut", "d.json", "--left", "i", "--right", "k"])
    )  # fmt: skip
    return command, {"d.json": data}


# --- Einsum strings and options -------------------------------------------------------------------


def _einsum(draw: random.Random) -> Drawn:
    letters = string.ascii_letters[: draw.choice((3, 6, 12, 52))]
    operands = [
        "".join(draw.choices(letters, k=draw.choice((0, 1, 2, 2, 3, 5))))
        for _ in range(draw.choice((1, 2, 2, 3, 4, 8, 15)))
    ]
    used = sorted(set("".join(operands)))
    result = "".join(draw.sample(used, min(len(used), draw.randint(0, 4))))
    text = ",".join(operands) + "->" + result
    if draw.random() < 0.4:
        text = damaged_bytes(text.encode(), draw).decode("utf-8", "replace").replace("\0", "0")
    if ":" in text:
        text = text.replace(":", ";")  # a colon names code to be imported
    if text.startswith("-"):
        text = f"i{text}"
    command = draw.choice((["cost"], ["code"], ["code", "--einsum"], ["draw", "-o", "e.svg"]))
    words = [*command, text]
    for letter in used[: draw.choice((0, len(used)))]:
        words += ["--size", f"{letter}={draw.choice((2, 2, 3, 3, 5, 10, *ODD_NUMBERS))}"]
    return words, {}


@cache
def _options() -> dict[str, list[tuple[str, bool]]]:
    """The options of every command, each with whether it takes a value."""
    import typer.main

    from rankscope.cli.main import COMMANDS, app

    group: Any = typer.main.get_command(app)
    commands = {name: group.commands[name] for name in COMMANDS}
    commands["experiment run"] = group.commands["experiment"].commands["run"]
    return {
        name: [
            (option.opts[0], not option.is_flag)
            for option in command.params
            if option.param_type_name == "option"
            and not {"--help", "--checkpoint"} & {*option.opts}
        ]
        for name, command in commands.items()
    }


# What makes each command quick, before odd options are added.
_STARTS = {
    "audit": ("audit digits", "audit c.json"),
    "plan": ("plan --params 1e7", "plan --total-params 1e8 --vocab 1000"),
    "compress": ("compress digits --dry-run",),
    "certify": ("certify digits --data digits --samples 2 --steps 1",),
    "generalization": ("generalization digits --data digits --samples 4 --jacobians 0",),
    "rank": (
        "rank shallow --order 4 --size 2 --channels 2",
        "rank tensor-train --order 4 --size 2 --bond 2 --method numeric",
        "rank attention --depth 1 --width 2 --tokens 2 --heads 1",
        "rank shallow --order 4 --size 2 --channels 2 --epsilon 0.1",
    ),
    "bounds": (
        "bounds attention --depth 2 --width 4 --tokens 8",
        "bounds shallow --order 4 --size 2 --channels 2",
        "bounds recurrent --depth 2 --order 4 --size 2 --channels 2",
    ),
    "verify": ("verify absent.json",),
    "sparsify": ("sparsify c.json",),
    "cp-rank": ("cp-rank c.json",),
    "diff": ("diff c.json c.json", "diff digits digits"),
    "evaluate": ("evaluate c.json", "evaluate digits"),
    "entanglement": ("entanglement c.json",),
    "draw": ("draw cp -o x.svg", "draw multi-head -o x.tikz"),
    "cost": ("cost multi-head", "cost cp", "cost tensor-train", "cost attention"),
    "cut": ("cut tensor-train --left i1 --right i2", "cut cp --left i1,i2 --right i3"),
    "code": ("code cp", "code multi-head --einsum"),
    "models": ("models",),
    "families": ("families",),
    "explain": ("explain", "explain nonsense"),
    "experiment run": (
        "experiment run tt-digits --only nothing -o out",
        "experiment run nothing -o out",
    ),
}
_SHARES = {"certify": 2, "generalization": 1, "rank": 5}
# With a little more of these an exact rank takes minutes, as it should.
_FEW: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(
        ("--depth", "--width", "--tokens", "--order", "--channels"), (-1, 0, 1, 2, 10**6, *HUGE)
    ),
    **dict.fromkeys(("--backend", "--jobs"), ("nonsense", 0, -1)),
}
_SETTINGS = ("order", "size", "rank", "H", "D", "i", "depth", "bond", "nonsense")


def _option(draw: random.Random) -> Drawn:
    # Those that train, attack or search take seconds: they are drawn less often.
    command = draw.choices(list(_STARTS), [_SHARES.get(name, 10) for name in _STARTS])[0]
    words = draw.choice(_STARTS[command]).split()
    for option, takes_value in draw.choices(_options()[command], k=draw.choice((0, 1, 1, 2, 3))):
        words.append(option)
        if takes_value:
            words.append(_value(option, draw))
    return words, {"c.json": json.dumps(draw.choice(CONFIGURATIONS)).encode()}


def _value(option: str, draw: random.Random) -> str:
    if option in _FEW:
        return str(draw.choice(_FEW[option]))
    number = draw.choice((*range(2, 9), *map(str, range(2, 9)), *ODD_NUMBERS))
    if option in ("--set", "--size"):
        return f"{draw.choice(_SETTINGS)}={number}"
    if option in ("--output", "-o"):
        return draw.choice(("x.svg", "absent/x.svg", "c.json/x", ".", "/proc/x", "x\0y", ""))
    kinds = (str(number), str(number), f"{number},{number}", f"{number}/{number}")
    texts = [text for text in ODD_TEXTS if ":" not in text and "\ud800" not in text]
    return draw.choice((*kinds, *kinds, draw.choice(texts), f"1e{draw.choice((10, 400))}"))


KINDS: dict[Callable[[random.Random], Drawn], int] = {
    _configuration: 4,
    _weights: 6,
    _samples: 1,
    _shards: 1,
    _tables: 2,
    _tensors: 2,
    _runtime: 2,
    _lists: 1,
    draw_request: 4,
    _certificate: 2,
    _plan: 1,
    _diagram: 3,
    _einsum: 3,
    _option: 5,
}
