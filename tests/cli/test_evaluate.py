"""`rankscope evaluate`: one document with fixed fields, one line for bad input."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.cli.conftest import refusal_of

from rankscope.cli.main import main
from rankscope.extras import transformers as load_transformers

WORDS = {"[UNK]": 0} | {f"w{number}": number for number in range(1, 60)}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 32}


def llama(folder: Path, vocabulary: int = 60) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    transformers = load_transformers()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, **HEADS, **TOKENS, vocab_size=vocabulary)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("dense"))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(" ".join(f"w{number * number % 59}" for number in range(100)))
    return path


refusal = partial(refusal_of, "evaluate")


@pytest.mark.slow
def test_a_folder_on_a_text_beside_its_dense_model(
    capsys: pytest.CaptureFixture[str], folder: Path, text: Path
) -> None:
    command = ["evaluate", str(folder), "--text", str(text), "--against", str(folder)]
    command += ["--context", "16", "--stride", "8", "--tokens", "60"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tokens"], found["predicted"], found["context"]) == (60, 59, 16)
    transformers = load_transformers()
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    tokens = torch.tensor([[number * number % 59 for number in range(60)]])
    losses = []
    for start in range(0, 60, 8):
        with torch.no_grad():
            logits = model(tokens[:, start : start + 16]).logits[0].double().log_softmax(-1)
        for place in range(1 if not start else 8, len(logits)):
            losses.append(-logits[place - 1, tokens[0, start + place]])
        if start + 16 >= 60:
            break
    assert len(losses) == 59
    assert found["perplexity"] == pytest.approx(float(torch.stack(losses).mean().exp()), rel=1e-5)
    assert (found["divergence"], found["agreement"]) == (0.0, 1.0)
    assert found["dense"]["perplexity"] == found["perplexity"]
    # Keys and values of two heads of eight float32 numbers in two layers.
    assert found["cache_bytes_per_token"] == 2 * 2 * 8 * 4 * 2
    assert found["prefill_tokens_per_second"] > 0
    assert found["generated_tokens_per_second"] > 0
    assert 0 < found["inference_activation_bytes"] < found["training_activation_bytes"]
    assert found["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "60 tokens, 59 of them predicted; context 16, stride 8" in shown
    assert "agreement 100.00%" in shown


def test_labelled_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["evaluate", "digits", "--data", "digits", "--samples", "50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == 50
    assert found["accuracy"] > 0.9
    assert found["perplexity"] is None
    path = tmp_path / "data.safetensors"
    save_file({"inputs": torch.rand(3, 1, 8, 8)}, path)
    command = ["evaluate", "digits", "--data", str(path), "--against", "digits"]
    assert main(command) == 0
    assert "outputs over their squared norm 0" in capsys.readouterr().out


@pytest.mark.slow
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, text: Path, tmp_path: Path
) -> None:
    given = (str(folder), "--text", str(text))
    empty = tmp_path / "empty.txt"
    empty.write_text(" \n")
    line = refusal(capsys, str(folder), "--text", str(empty))
    assert "has 0 tokens; give a text with some" in line
    assert "2 tokens or more, got 1" in refusal(capsys, *given, "--context", "1")
    assert "context of 33 was asked for, but the model has only 32" in refusal(
        capsys, *given, "--context", "33"
    )
    assert "at least 2 tokens in a row, got 1" in refusal(capsys, *given, "--tokens", "1")
    assert "one of the two" in refusal(capsys, str(folder))
    assert "one of the two" in refusal(capsys, *given, "--data", "digits")
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("tokenizer*"))
    assert "has no tokenizer" in refusal(capsys, str(bare), "--text", str(text))
    other = llama(tmp_path / "other", 70)
    line = refusal(capsys, *given, "--against", str(other))
    assert "has 70 tokens, but" in line
    assert "has 60; compare models of the same vocabulary" in line
    assert "give inputs with --data" in refusal(capsys, "digits", "--text", str(text))
    path = tmp_path / "data.safetensors"
    save_file({"inputs": torch.rand(3, 1, 8, 8), "labels": torch.rand(3)}, path)
    line = refusal(capsys, "digits", "--data", str(path))
    assert "are torch.float32, wanted integers" in line
    save_file({"inputs": torch.rand(3, 1, 8, 8), "labels": torch.ones(2).long()}, path)
    line = refusal(capsys, "digits", "--data", str(path))
    assert "'inputs': 3" in line
    assert "'labels': 2" in line
