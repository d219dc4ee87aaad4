"""`rankscope audit` from the command line."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rankscope.cli.main import main

T5_11B = {
    "model_type": "t5",
    "vocab_size": 32128,
    "d_model": 1024,
    "d_kv": 128,
    "d_ff": 65536,
    "num_layers": 24,
    "num_decoder_layers": 24,
    "num_heads": 128,
    "relative_attention_num_buckets": 32,
    "feed_forward_proj": "relu",
    "tie_word_embeddings": True,
}


def test_t5_11b_comes_out_as_published(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(T5_11B), encoding="utf-8")
    assert main(["audit", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"]["total"] == 11_307_321_344
    assert list(found["parameters"]) == [
        "total", "embedding", "attention", "feed_forward", "normalization", "head", "other",
    ]  # fmt: skip
    finding = next(entry for entry in found["findings"] if entry["id"] == "head-bottleneck")
    assert (finding["value"], finding["threshold"], finding["saving"]) == (16384, 1024, 0.4006)
    shape = found["configuration"]
    assert (shape["encoder_depth"], shape["decoder_depth"], shape["heads"]) == (24, 24, 128)
    assert main(["audit", str(path)]) == 0
    assert "40.1 % of all parameters lie above" in capsys.readouterr().out


def test_a_configuration_is_audited_without_torch(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(T5_11B), encoding="utf-8")
    code = (
        "import sys; from rankscope.cli.main import main;"
        f"main(['audit', {str(path)!r}]); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip().splitlines()[-1] == "False"


def test_files_are_written_only_when_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert main(["audit"]) == 0
    assert sorted(tmp_path.rglob("*")) == before
    capsys.readouterr()
    assert main(["audit", "-o", "out"]) == 0
    printed = capsys.readouterr().out
    assert "out/audit.json" in printed
    document = json.loads((tmp_path / "out" / "audit.json").read_text(encoding="utf-8"))
    assert document["format"] == "rankscope-audit"
    assert document["tensors"]
    page = (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") or page.startswith("<!doctype html>")
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_module_by_its_factory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "audited.py").write_text(
        "from torch import nn\ndef layer():\n    return nn.Linear(6, 3)\n", encoding="utf-8"
    )
    assert main(["audit", "audited:layer", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["source"] == "audited:layer"
    assert found["parameters"]["total"] == 21


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, ("ran.txt", "w"))


def test_hostile_and_broken_files_are_one_line_and_write_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "evil.pt").write_bytes(pickle.dumps({"weight": Malicious()}))
    torch.save({"weight": Malicious()}, tmp_path / "evil2.pt")
    (tmp_path / "short.safetensors").write_bytes(b"\x10\x00")
    (tmp_path / "deep.json").write_text("[" * 100_000 + "]" * 100_000, encoding="utf-8")
    (tmp_path / "unknown.json").write_text('{"model_type": "of-nobody"}', encoding="utf-8")
    (tmp_path / "ran.txt").unlink(missing_ok=True)
    for name in ("evil.pt", "evil2.pt", "short.safetensors", "deep.json", "unknown.json", "none"):
        assert main(["audit", name, "-o", "out"]) == 2, name
        said = capsys.readouterr()
        assert said.err.count("\n") == 1, said.err
    assert not (tmp_path / "ran.txt").exists()
    assert not (tmp_path / "out").exists()
