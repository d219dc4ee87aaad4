"""The campaign of kills: long commands die at random moments, go on, and must end the same.

A command is run undisturbed first. Then, in a new folder each time, it is started, killed without
warning after a random share of the time it took, perhaps several times, and started again until it
is through. It must succeed, leave the same files and no others, and print the same numbers.

Every run is a process of its own, forked from one in which everything is loaded: so kills hit the
work, not the imports before it.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers
import torch

from rankscope.cli.main import main
from rankscope.errors import RankscopeError
from rankscope.extras import transformers as load_transformers
from rankscope.hf import load_folder

# Never twice the same: times, and the commit of whoever works on the project meanwhile.
_TIMED = frozenset({"seconds", "environment", "environments", "latencies", "timing"})


@dataclass(frozen=True)
class LongCommand:
    """A command that is worth killing.

    Args:
        words: of the command; it runs in a folder of its own. `BASE` is a folder with a small
            language model and a text.
        ignored: files that hold times, and are only required to be there.
        trains: whether it trains for some time, and so never ends at the same numbers.
    """

    words: str
    ignored: tuple[str, ...] = ()
    trains: bool = False


COMMANDS = (
    LongCommand("rank attention --tokens 4 --depth 2 --width 4 --checkpoint ck --certificate c"),
    LongCommand("rank shallow --order 6 --size 3 --channels 9 --checkpoint ck --json"),
    LongCommand("experiment run tt-cp-rank --quick -o results"),
    LongCommand("experiment run trained-regions --quick -o results"),
    LongCommand("compress digits --keep 0.4 -o model", ("model/report.json",)),
    LongCommand("compress BASE/llama --keep 0.5 --text BASE/text -o model", ("model/report.json",)),
    LongCommand(
        "compress BASE/llama --keep 0.5 --text BASE/text --repair 0.03 -o model", trains=True
    ),
    LongCommand("audit -o audit"),
    LongCommand("certify digits --data digits --samples 8 --steps 5 -o certified"),
    LongCommand("generalization digits --data digits --samples 16 --jacobians 2 -o bounded"),
    LongCommand("plan --params 1e8 -o plan.svg"),
    LongCommand("draw tensor-train --set order=5 --set size=2 --set rank=2 -o picture.gif"),
)


@dataclass(frozen=True)
class Ended:
    """How a command ended that was not killed."""

    code: int
    output: str
    files: dict[str, str]


def run_kills(seed: int, seconds: float, most: int, only: str = "") -> int:
    """Kill until time or numbers are used up, every command in turn; 1 if anything differed.

    Args:
        seed: of the moments.
        seconds: at most.
        most: kills.
        only: commands that have this in their words.
    """
    with tempfile.TemporaryDirectory(prefix="rankscope-kill-") as base:
        _load(Path(base))
        chosen = [replace(one, words=one.words.replace("BASE", base)) for one in COMMANDS]
        return _run([one for one in chosen if only in one.words], seed, seconds, most)


def _run(commands: Sequence[LongCommand], seed: int, seconds: float, most: int) -> int:
    until = time.monotonic() + seconds
    draw = random.Random(f"kills {seed}")
    undisturbed: dict[LongCommand, tuple[Ended, float]] = {}
    num_kills = num_rounds = num_wrong = 0
    while time.monotonic() < until and num_kills < most:
        command = commands[num_rounds % len(commands)]
        if command not in undisturbed:
            undisturbed[command] = _undisturbed(command)
        whole, duration = undisturbed[command]
        kills, complaint = _killed(command, whole, duration, draw)
        num_rounds, num_kills = num_rounds + 1, num_kills + kills
        if complaint:
            num_wrong += 1
            print(f"rankscope {command.words}\n    {complaint[:1500]}", flush=True)
    print(f"seed {seed}: {num_kills} kills of {num_rounds} runs, {num_wrong} went wrong")
    return 1 if num_wrong else 0


def _undisturbed(command: LongCommand) -> tuple[Ended, float]:
    with tempfile.TemporaryDirectory(prefix="rankscope-kill-") as folder:
        started = time.monotonic()
        ended = _finish(command, Path(folder))
        if ended.code != 0:
            raise RuntimeError(f"{command.words} ended with {ended.code}: {ended.output}")
        return ended, time.monotonic() - started


def _killed(
    command: LongCommand, whole: Ended, duration: float, draw: random.Random
) -> tuple[int, str]:
    """How many kills there were, and what was different in the end."""
    kills, moments = 0, []
    with tempfile.TemporaryDirectory(prefix="rankscope-kill-") as name:
        folder = Path(name)
        for _ in range(draw.choice((1, 2, 3, 4))):
            moments.append(draw.random() * duration)
            kills += _start_and_kill(command, folder, moments[-1])
            wrong = _wrong_model(folder / "model", command, whole)
            if wrong:
                return kills, f"killed after {moments[-1]:.2f} of {duration:.2f} s: {wrong}"
        ended = _finish(command, folder)
        wrong = _wrong_model(folder / "model", command, whole)
    if not wrong and (ended == whole or (command.trains and _same_names(ended, whole))):
        return kills, ""
    told = ", ".join(f"{moment:.2f}" for moment in moments)
    return kills, f"killed after {told} of {duration:.2f} s: {_difference(ended, whole)}"


def _same_names(ended: Ended, whole: Ended) -> bool:
    return ended.code == whole.code and set(ended.files) == set(whole.files)


def _wrong_model(folder: Path, command: LongCommand, whole: Ended) -> str:
    """What is wrong with a model that can be opened; nothing if there is none, or it is refused."""
    weights = folder / "model.safetensors"
    model: Any = None
    if "llama" in command.words and weights.is_file():
        with contextlib.suppress(RankscopeError):
            model = load_folder(folder)
    if model is None:
        return ""
    has_plan = getattr(model.config, "quantization_config", None) is not None
    wrong = "" if has_plan else "a model without a plan can be opened"
    if not command.trains:
        found = hashlib.sha256(weights.read_bytes()).hexdigest()
        if found != whole.files[f"model/{weights.name}"]:
            wrong = "another model can be opened"
    with torch.no_grad():
        logits = model(input_ids=torch.arange(8)[None]).logits
    return wrong if bool(logits.isfinite().all()) else "a model of NaN can be opened"


def _write_language_model(folder: Path) -> None:
    """A tiny Llama with a tokenizer, and a text."""
    transformers = load_transformers()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        **sizes, intermediate_size=48, max_position_embeddings=32, vocab_size=60
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "llama")
    words = {"[UNK]": 0} | {f"w{number}": number for number in range(1, 60)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    fast.save_pretrained(folder / "llama")
    text = " ".join(f"w{number * number % 59}" for number in range(2000))
    (folder / "text").write_text(text, encoding="utf-8")


def _load(base: Path) -> None:
    """Load what commands need, and compile what they compile, once for all runs."""
    os.environ |= {"RANKSCOPE_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    _write_language_model(base)
    with tempfile.TemporaryDirectory(prefix="rankscope-kill-") as folder:
        for words in (
            "rank shallow --order 4 --size 2 --channels 2 --backend sequential",
            "rank attention --tokens 2 --depth 1 --width 2 --backend sequential",
            "compress digits --dry-run",
            f"compress {base}/llama --keep 0.5 --text {base}/text --dry-run",
            "draw cp -o picture.svg",
        ):
            here = Path.cwd()
            os.chdir(folder)
            with contextlib.redirect_stdout(io.StringIO()):
                main(words.split())
            os.chdir(here)


def _start(command: LongCommand, folder: Path, output: Path) -> int:
    """The number of a new process that runs a command."""
    child = os.fork()
    # Both set the group: a child killed at once has none yet, and one that starts may be first.
    os.setpgid(child, child)
    if child:
        return child
    os.chdir(folder)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w") for number in (1, 2))
    code = 70
    try:
        code = main(command.words.split())
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _start_and_kill(command: LongCommand, folder: Path, delay: float) -> int:
    """1 if the process was killed, 0 if it had ended before."""
    process = _start(command, folder, Path(os.devnull))
    until = time.monotonic() + delay
    while time.monotonic() < until:
        if os.waitpid(process, os.WNOHANG)[0]:
            return 0
        time.sleep(0.002)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return 1


def _finish(command: LongCommand, folder: Path) -> Ended:
    with tempfile.NamedTemporaryFile(prefix="rankscope-kill-") as output:
        status = os.waitpid(_start(command, folder, Path(output.name)), 0)[1]
        text = Path(output.name).read_text()
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, _without_times(text), _files(folder, command.ignored))


def _without_times(output: str) -> str:
    """The output: of a document all but times, of text all lines without a time."""
    try:
        return json.dumps(_untimed(json.loads(output)), sort_keys=True)
    except ValueError:
        # Times are of different lengths, and so are the columns that hold them.
        lines = [" ".join(line.split()) for line in output.splitlines()]
        return "\n".join(
            line for line in lines if "latency" not in line and not line.endswith((" s", "s)"))
        )


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untimed(item) for key, item in value.items() if key not in _TIMED}
    return [_untimed(item) for item in value] if isinstance(value, list) else value


def _files(folder: Path, ignored: tuple[str, ...]) -> dict[str, str]:
    contents = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        readers: dict[str, Callable[[bytes], bytes]] = {".json": _document, ".md": _table}
        if path.is_file() and name not in ignored:
            data = readers.get(path.suffix, bytes)(path.read_bytes())
            contents[name] = hashlib.sha256(data).hexdigest()
        else:
            contents[name] = "there"
    return contents


def _document(data: bytes) -> bytes:
    return json.dumps(_untimed(json.loads(data)), sort_keys=True).encode()


def _table(data: bytes) -> bytes:
    return b"" if b"seconds" in data else data


def _difference(ended: Ended, whole: Ended) -> str:
    if ended.code != whole.code:
        return f"exit {ended.code}: {ended.output[-800:]}"
    names = {*ended.files, *whole.files}
    files = sorted(name for name in names if ended.files.get(name) != whole.files.get(name))
    if files:
        return f"other files: {', '.join(files[:9])}"
    return f"printed {ended.output[-600:]!r}, wanted {whole.output[-600:]!r}"
