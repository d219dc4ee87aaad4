"""How commands end: before work that cannot be kept, when nobody reads, and on Ctrl-C."""

import io
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import save_file

from rankscope.cli.main import COMMANDS, main

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from rankscope.cli.entry import main; sys.exit(main())",
]


# What is asked for is wrong, too: an answer about the output shows that it was looked at first.
@pytest.mark.parametrize(
    "command",
    [
        "rank attention --certificate absent/c.json",
        "audit absent-model -o file/folder",
        "certify absent-model --data absent-data -o file/folder",
        "generalization absent-model --data absent-data -o file/folder",
        "compress absent-model -o file/folder",
        "plan -o absent/plan.svg",
        "code absent-model -o absent/x.py",
        "draw cp -o absent/x.svg",
        "explain sawtooth -o file/folder",
        "experiment run degree-budget --quick -o file/folder",
    ],
)
def test_where_the_result_goes_is_looked_at_before_it_is_computed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").touch()
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("rankscope: Cannot ")
    assert "absent'" in error or "file" in error
    assert [path.name for path in Path.cwd().iterdir()] == ["file"]


def test_escape_sequences_in_names_reach_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"\x1b[2Jfc.weight": torch.randn(30, 30)}, "model.safetensors")
    assert main(["audit", "model.safetensors"]) == 0
    printed = capsys.readouterr()
    assert "\\x1b[2Jfc.weight" in printed.out
    assert "\x1b" not in printed.out + printed.err
    save_file({"\x1b[2Jfc.weight": torch.zeros(0, 3)}, "model.safetensors")
    assert main(["audit", "model.safetensors"]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("command", [["models"], ["--help"]])
def test_a_reader_that_has_gone_ends_a_command_quietly(command: list[str]) -> None:
    process = subprocess.Popen([*COMMAND, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def listen() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.3, 1.0, 3.0])
def test_an_interrupt_ends_with_130_and_one_line(delay: float) -> None:
    words = ["rank", "attention", "--tokens", "8", "--depth", "2", "--width", "14", "--heads", "2"]
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=listen,  # a suite in the background would hand down that interrupts are ignored
    )
    with process:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert error.decode().startswith("rankscope: interrupted")
    assert error.count(b"\n") == 1


PRODUCT = "ij,jk->ik --size i=2 --size j=3 --size k=2"
# One quick request of every command; each of them prints something.
REQUESTS = {
    "audit": "digits",
    "bounds": "shallow --order 4 --size 2 --channels 2",
    "certify": "digits --data digits --samples 2 --steps 1",
    "code": PRODUCT,
    "compress": "digits --dry-run",
    "cost": PRODUCT,
    "cp-rank": "tensor.npy",
    "cut": f"{PRODUCT} --left i --right k",
    "diff": "first.safetensors second.safetensors",
    "draw": "cp -o cp.svg",
    "entanglement": "table.csv",
    "evaluate": "digits --data digits --samples 2",
    "experiment": "list",
    "explain": "sawtooth",
    "families": "",
    "generalization": "digits --data digits --samples 4 --jacobians 0",
    "models": "",
    "open": "digits --no-browser --port 0",
    "plan": "--params 1e7",
    "rank": "shallow --order 4 --size 2 --channels 2",
    "sparsify": "edges.txt --depth 3",
    "verify": "certificate.json",
}


class Closing(io.StringIO):
    """Standard output that ends the command when it is first written to."""

    def __init__(self, reason: type[BaseException]) -> None:
        super().__init__()
        self.reason = reason

    def write(self, text: str) -> int:
        del text
        raise self.reason


@pytest.fixture
def inputs() -> None:
    """The files that the requests name."""
    numpy.save("tensor.npy", numpy.ones((2, 2, 2)))
    for name in ("first", "second"):
        save_file({"fc.weight": torch.randn(4, 4)}, f"{name}.safetensors")
    Path("table.csv").write_text("a,b,c\n1,2,0\n2,1,1\n3,5,0\n4,4,1\n")
    Path("edges.txt").write_text("0 1\n1 2\n2 3\n0 3\n")
    assert main(["rank", *REQUESTS["rank"].split(), "--certificate", "certificate.json"]) == 0


def test_every_command_has_a_request() -> None:
    assert set(REQUESTS) == {*COMMANDS, "experiment"}


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("command", sorted(REQUESTS))
def test_every_command_ends_quietly_when_nobody_reads_and_with_one_line_when_interrupted(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [command, *REQUESTS[command].split()]
    capsys.readouterr()
    ends = [(BrokenPipeError, 141, ""), (KeyboardInterrupt, 130, "rankscope: interrupted\n")]
    for reason, code, said in ends:
        with monkeypatch.context() as patched:
            closing = Closing(reason)
            patched.setattr(sys, "stdout", closing)
            found = main(words)
            if sys.stdout is not closing:
                sys.stdout.close()  # what the rest of the output was to go to
        assert (found, capsys.readouterr().err) == (code, said)


@pytest.mark.parametrize("name", ["_raw_object_cache_notify", "__del__"])
def test_an_interrupt_waits_while_a_compiler_calls_back_or_an_object_dies(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is raised there would be printed and lost."""
    reached = []

    def end() -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append("the end")

    end.__code__ = end.__code__.replace(co_name=name)

    def run(_: list[str]) -> None:
        end()
        time.sleep(20)

    monkeypatch.setattr("rankscope.cli.main._run_application", run)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert main(["models"]) == 130
    assert reached == ["the end"]
    assert capsys.readouterr().err == "rankscope: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
