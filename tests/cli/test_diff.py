"""`rankscope diff`: ranks of what fine-tuning changed, and an adapter that peft loads."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from tests.cli.conftest import refusal_of
from torch import Tensor

from rankscope.auditing import matrix_spectrum, rank_above_chance
from rankscope.cli.main import main
from rankscope.extras import transformers as load_transformers

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "vocab_size": 60}
LLAMA = SIZES | {"num_attention_heads": 4, "max_position_embeddings": 32, "eos_token_id": 2}
GPT2 = {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 60, "n_positions": 32} | {
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tiny(kind: str) -> tuple[Any, dict[str, int], list[str]]:
    """A model, modules to change with the ranks of their changes, and some to change wholly."""
    transformers = load_transformers()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    if kind != "GPT2":
        config = transformers.LlamaConfig(**LLAMA, tie_word_embeddings=kind != "Llama")
        model = transformers.LlamaForCausalLM(config)
        changed = {"model.layers.0.self_attn.q_proj": 2, "model.layers.1.mlp.down_proj": 3}
        return model, changed, ["model.norm", "model.embed_tokens"]
    config = transformers.GPT2Config(**GPT2, tie_word_embeddings=False)
    changed = {"transformer.h.0.attn.c_attn": 2, "transformer.h.0.mlp.c_proj": 3}
    return transformers.GPT2LMHeadModel(config), changed, ["transformer.ln_f"]


def change(model: Any, changed: dict[str, int], whole: list[str]) -> None:
    with torch.no_grad():
        for name, rank in changed.items():
            weight = model.get_submodule(name).weight
            rows, columns = weight.shape
            weight += 0.1 * torch.randn(rows, rank) @ torch.randn(rank, columns)
        for name in whole:
            model.get_submodule(name).weight.mul_(1.1)


def found(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    assert main(["diff", *command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


refusal = partial(refusal_of, "diff")


@settings(max_examples=10, deadline=None)
@given(
    rank=st.integers(0, 5),
    rows=st.integers(30, 80),
    columns=st.integers(30, 80),
    seed=st.integers(0, 9),
)
def test_the_rank_is_that_of_what_is_not_noise(
    rank: int, rows: int, columns: int, seed: int
) -> None:
    torch.manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(rows, max(rank, 1)))
    right, _ = torch.linalg.qr(torch.randn(columns, max(rank, 1)))
    noise = torch.randn(rows, columns) / (rows**0.5 + columns**0.5)  # largest value about 1
    # Far above and of very different sizes: the largest must not hide the smallest.
    values = 10.0 * 3.0 ** torch.arange(max(rank, 1)) * (rank > 0)
    spectrum = matrix_spectrum(left * values @ right.T + noise)
    counted, edge = rank_above_chance(spectrum)
    assert counted == rank
    assert spectrum.values[rank] <= edge < 2
    exact, _ = rank_above_chance(matrix_spectrum(left.double() * values @ right.double().T))
    assert exact == rank


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Llama", "tied Llama", "GPT2"])
def test_the_adapter_gives_the_tuned_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    model, changed, whole = tiny(kind)
    from peft import PeftModel

    model.eval().save_pretrained(tmp_path / "base")
    change(model, changed, whole)
    model.save_pretrained(tmp_path / "tuned")
    paths = [str(tmp_path / name) for name in ("base", "tuned")]
    document = found(capsys, *paths, "-o", str(tmp_path / "adapter"))
    ranks = {row["name"]: row["rank"] for row in document["tensors"] if row["norm"] > 0}
    assert {name: ranks[f"{name}.weight"] for name in changed} == changed
    assert set(ranks) == {f"{name}.weight" for name in (*changed, *whole)}
    adapter = document["adapter"]
    assert adapter["ranks"] == changed
    assert sorted(adapter["whole"]) == sorted([*whole, *["lm_head"] * (kind == "tied Llama")])
    assert adapter["error"] < 1e-4
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert {re.sub(r"\\", "", name): r for name, r in config["rank_pattern"].items()} == changed
    fresh = type(model).from_pretrained(tmp_path / "base").eval()
    adapted = PeftModel.from_pretrained(fresh, tmp_path / "adapter").eval()
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        wanted, got = model(tokens).logits, adapted(tokens).logits
    assert torch.allclose(wanted, got, atol=1e-4 * float(wanted.abs().max()))
    assert main(["diff", *paths, "-o", str(tmp_path / "again")]) == 0
    shown = capsys.readouterr().out
    assert "2 modules in factors" in shown
    assert "of the difference" in shown


def weights(path: Path, **tensors: Tensor) -> str:
    save_file({name.replace("_", "."): tensor for name, tensor in tensors.items()}, path)
    return str(path)


def test_files_are_compared_tensor_by_tensor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    matrix, kernel = torch.randn(40, 50), torch.randn(20, 4, 3, 3)
    base = weights(
        tmp_path / "a.safetensors", a_weight=matrix, b_weight=kernel, c_bias=torch.zeros(3)
    )
    change = torch.zeros_like(matrix)
    change[3, 4] = 2.0
    tuned = weights(
        tmp_path / "b.safetensors", a_weight=matrix + change, b_weight=kernel, c_bias=torch.ones(3)
    )
    rows = {row["name"]: row for row in found(capsys, base, tuned)["tensors"]}
    assert (rows["a.weight"]["rank"], rows["b.weight"]["rank"]) == (1, 0)
    assert rows["a.weight"]["norm"] == pytest.approx(2.0, rel=1e-6)
    assert rows["a.weight"]["relative"] == pytest.approx(2 / float(matrix.norm()), rel=1e-6)
    assert rows["a.weight"]["singular_values"][0] == pytest.approx(2.0, rel=1e-6)
    assert len(rows["a.weight"]["singular_values"]) == 40
    assert (rows["c.bias"]["rank"], rows["c.bias"]["relative"]) == (None, None)
    assert main(["diff", base, tuned]) == 0
    assert "2 of 3 tensors changed." in capsys.readouterr().out


def test_what_cannot_be_compared_or_adapted_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one, out = torch.eye(8), str(tmp_path / "out")
    base = weights(tmp_path / "a.safetensors", a_weight=one, b_weight=one.clone())
    other = weights(tmp_path / "b.safetensors", c_weight=one)
    line = refusal(capsys, base, other)
    assert "of 2 tensors before and 1 after, none has the same name" in line
    assert "two models are equal" in refusal(capsys, base, base, "-o", out)
    fewer = weights(tmp_path / "c.safetensors", a_weight=torch.ones(8, 9))
    line = refusal(capsys, base, fewer, "-o", out)
    assert "2 tensors are in one model only or have another shape, such as b.weight" in line
    broken = weights(tmp_path / "d.safetensors", a_weight=one / 0, b_weight=one.clone())
    assert "a.weight has 64 NaN or infinite numbers of 64" in refusal(capsys, base, broken)
    shifted = weights(tmp_path / "e.safetensors", a_scale=one, b_weight=one.clone())
    moved = weights(tmp_path / "f.safetensors", a_scale=2 * one, b_weight=one.clone())
    line = refusal(capsys, shifted, moved, "-o", out)
    assert "a.scale was changed, which is no weight or bias" in line
    twice = weights(tmp_path / "g.safetensors", a_weight=2 * one, b_weight=one.clone())
    line = refusal(capsys, base, twice, "-o", out)
    assert "is a matrix with directions above chance" in line
    assert not Path(out).exists()
    tables = []
    for number in (1, 2):
        folder = tmp_path / f"table{number}"
        folder.mkdir()
        weights(folder / "model.safetensors", shared_weight=number * one)
        document = {"model_type": "t5", "tie_word_embeddings": True}
        document |= {"architectures": ["T5ForConditionalGeneration"]}
        (folder / "config.json").write_text(json.dumps(document))
        tables.append(str(folder))
    line = refusal(capsys, *tables, "-o", out)
    assert "shared.weight was changed and is tied to a head whose name" in line
    assert "an einsum" in refusal(capsys, "ij,jk->ik", base)
