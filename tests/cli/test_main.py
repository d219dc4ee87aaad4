import json
import subprocess
import sys
from pathlib import Path

import pytest

import rankscope
from rankscope.cli.main import main

NOT_LOADED = (
    "import sys; from rankscope.cli.main import main; code = main({arguments!r});"
    "assert 'torch' not in sys.modules; sys.exit(code)"
)


def run_apart(*arguments: str) -> "subprocess.CompletedProcess[str]":
    code = NOT_LOADED.format(arguments=list(arguments))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("flag", ["--help", "-h", "--version"])
def test_help_and_version_never_load_torch(flag: str) -> None:
    done = run_apart(flag)
    assert done.returncode == 0, done.stderr
    assert "rankscope" in done.stdout


@pytest.mark.parametrize("command", ["draw", "cost", "cut", "code", "families"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert command in capsys.readouterr().out


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rankscope {rankscope.__version__}\n"


def test_nothing_asked_is_a_call_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Usage" in capsys.readouterr().out


WRONG = [
    (["nonsense"], "No such command 'nonsense'"),
    (["cost"], "Missing argument"),
    (["cost", "cp", "--bogus"], "No such option: --bogus"),
    (["cost", "multi-haed"], "multi-head"),
    (["cost", "ij,jk->iz", "--size", "i=2"], "'z'"),
    (["cost", "ij,jk->ik", "--size", "i=2"], "j"),
    (["cost", "ij,jk->ik", "--size", "i=0"], "positive integer"),
    (["cost", "ij,jk->ik", "--size", "i=two"], "positive integer, got 'two'"),
    (["cost", "ij,jk->ik", "--size", "i"], "NAME=VALUE, got 'i'"),
    (["cost", "ij,jk->ik", "--size", "i=2", "--set", "i=3"], "two values: 3 and 2"),
    (["cost", "ij,jk->ik", "--input", "2,2"], "--input does not apply"),
    (["cost", "cp", "--parameter", "0"], "--parameter does not apply"),
    (["cost", "no.such.module:factory"], "no module named 'no'"),
    (["cost", "json:nothing"], "no attribute 'nothing'"),
    (["cost", "json:dumps"], "raised TypeError when called without arguments"),
    (["cost", "json:JSONDecoder", "--input", "1"], "gives a JSONDecoder"),
    (["cost", "torch.nn:ReLU"], "give the shape of its input"),
    (["cost", "torch.nn:ReLU", "--input", "1,x"], "positive integers like 1,3,32,32, got '1,x'"),
    (
        ["cost", "torch.nn:ReLU", "--input", "2", "--set", "a=1"],
        "--set does not apply to the module",
    ),
    (["cost", "absent.json"], "Cannot read 'absent.json': No such file"),
    (["cost", "cp", "--method", "magic"], "automatic, exhaustive, greedy, cotengra, got 'magic'"),
    (["draw", "cp", "--theme", "pink"], "light, dark, print, got 'pink'"),
    (["draw", "cp", "-o", "x.bmp"], ".svg, .pdf, .png, .tikz, .gif, .html"),
    (["draw", "cp", "-o", "absent/x.svg"], "absent"),
    (["cut", "mlp", "--left", "b", "--right", "o"], "mlp"),
    (["cut", "sum-of-pure-tensors", "--left", "i1", "--right", "i2"], "cut takes one diagram"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_wrong_request_is_told_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(arguments)
    printed = capsys.readouterr()
    assert code == (1 if "raised" in message else 2)
    assert printed.out == ""
    assert printed.err.startswith("rankscope: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert not list(Path.cwd().iterdir())


def test_with_json_an_error_is_one_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "multi-haed", "--json"]) == 2
    assert "multi-head" in json.loads(capsys.readouterr().out)["error"]


def test_debug_adds_the_traceback_wherever_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--debug", "cost", "multi-haed"], ["cost", "multi-haed", "--debug"]):
        assert main(arguments) == 2
        assert "Traceback" in capsys.readouterr().err


def test_an_unforeseen_failure_exits_with_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the disk is on fire")

    monkeypatch.setattr("rankscope.cli.cost.opened_for", fail)
    assert main(["cost", "cp"]) == 1
    error = capsys.readouterr().err
    assert error == (
        "rankscope: RuntimeError: the disk is on fire (run again with --debug for the traceback)\n"
    )


def test_a_file_that_is_not_json_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.json").write_text("{")
    assert main(["cost", "broken.json"]) == 2
    assert "broken.json is not usable JSON" in capsys.readouterr().err


def test_a_module_that_fails_to_import_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("exploding_module.py").write_text("raise OSError('no')")
    assert main(["cost", "exploding_module:make"]) == 2
    assert "importing 'exploding_module' raised OSError: no" in capsys.readouterr().err
