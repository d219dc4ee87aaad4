"""`rankscope compress FOLDER --text FILE`: models of Hugging Face from the command line."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.cli.conftest import refusal_of

from rankscope.cli.main import main
from rankscope.extras import transformers as load_transformers

WORDS = {"[UNK]": 0} | {f"w{number}": number for number in range(1, 60)}


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny Llama and a tokenizer of sixty words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    transformers, folder = load_transformers(), tmp_path_factory.mktemp("dense")
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    tokens = {"vocab_size": 60, "bos_token_id": 1, "eos_token_id": 2}
    config = transformers.LlamaConfig(
        **sizes, **tokens, intermediate_size=48, max_position_embeddings=16
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder, max_shard_size="30KB")
    words = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(" ".join(f"w{number * number % 59}" for number in range(300)))
    return path


def refusal(capsys: pytest.CaptureFixture[str], tmp_path: Path, *command: str) -> str:
    """The one line of an error, after which nothing has been written."""
    line = refusal_of("compress", capsys, *command, "-o", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    return line


@pytest.mark.slow
def test_a_folder_is_compressed_on_a_text_and_opens_again(
    capsys: pytest.CaptureFixture[str], dense: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = ["compress", str(dense), "--keep", "0.6", "--text", str(text), "--json"]
    command += ["--scores", "activations"]
    assert main([*command, "-o", str(out)]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["scoring"] == "activations"
    assert plan["kept_parameters"] <= 0.6 * plan["dense_parameters"]
    assert {"config.json", "model.safetensors", "tokenizer.json", "report.json"} <= {
        path.name for path in out.iterdir()
    }
    config = json.loads((out / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "rankscope"
    assert config["quantization_config"]["plan"]["layers"] == plan["layers"]
    from rankscope.models import open_model

    opened = open_model(out)
    kept = sum(parameter.numel() for parameter in opened.module.parameters())
    assert kept == plan["kept_parameters"]
    (score,) = json.loads((out / "report.json").read_bytes())["scores"]
    assert score["name"] == "perplexity"
    assert main(["evaluate", str(dense), "--text", str(text), "--json"]) == 0
    # All tokens of this short text are its last ones.
    assert json.loads(capsys.readouterr().out)["perplexity"] == pytest.approx(score["dense"])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "file"), [("torch", "model.pt2"), ("onnx", "model.onnx")])
def test_a_file_for_other_runtimes_is_written_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, file: str
) -> None:
    out = tmp_path / "out"
    assert main(["compress", "digits", "--keep", "0.1", "--export", kind, "-o", str(out)]) == 0
    assert (out / file).stat().st_size > 0
    assert (out / "plan.json").is_file()


def test_texts_and_tokenizers_that_do_not_serve_are_refused(
    capsys: pytest.CaptureFixture[str], dense: Path, text: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text(" \n")
    line = refusal(capsys, tmp_path, str(dense), "--text", str(empty))
    assert "has 0 tokens; give a text with some" in line
    line = refusal(capsys, tmp_path, str(dense), "--text", str(tmp_path / "none.txt"))
    assert "none.txt" in line
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "no text in UTF-8" in refusal(capsys, tmp_path, str(dense), "--text", str(binary))
    bare = tmp_path / "bare"
    shutil.copytree(dense, bare, ignore=shutil.ignore_patterns("tokenizer*"))
    line = refusal(capsys, tmp_path, str(bare), "--text", str(text))
    assert "has no tokenizer: wanted one of tokenizer.json" in line
    line = refusal(capsys, tmp_path, "digits", "--text", str(text))
    assert "'digits' is a built-in network; give inputs with --data" in line
    line = refusal(capsys, tmp_path, str(dense), "--text", str(text), "--data", "digits")
    assert "--data and --text were both given" in line


def test_options_that_make_no_sense_are_refused(
    capsys: pytest.CaptureFixture[str], dense: Path, text: Path, tmp_path: Path
) -> None:
    given = (str(dense), "--text", str(text))
    assert "--scores" in refusal(capsys, tmp_path, *given, "--scores", "luck")
    assert "--export" in refusal(capsys, tmp_path, *given, "--export", "tar")
    line = refusal(capsys, tmp_path, str(dense), "--scores", "activations")
    assert "--scores activations needs inputs: give them with --data or --text" in line


def test_damaged_folders_are_refused(
    capsys: pytest.CaptureFixture[str], dense: Path, text: Path, tmp_path: Path
) -> None:
    shard = sorted(dense.glob("model-*.safetensors"))[0].name
    lacking = tmp_path / "lacking"
    shutil.copytree(dense, lacking, ignore=shutil.ignore_patterns(shard))
    line = refusal(capsys, tmp_path, str(lacking), "--text", str(text))
    assert f"1 are missing: '{shard}'" in line
    unknown = tmp_path / "unknown"
    shutil.copytree(dense, unknown)
    config = json.loads((unknown / "config.json").read_text())
    (unknown / "config.json").write_text(json.dumps(config | {"architectures": ["Unheard"]}))
    line = refusal(capsys, tmp_path, str(unknown), "--text", str(text))
    assert "has no model 'Unheard'; code that comes with a folder is never run" in line
    smaller = tmp_path / "smaller"
    shutil.copytree(dense, smaller)
    (smaller / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    line = refusal(capsys, tmp_path, str(smaller), "--text", str(text))
    assert "lacks 9 of the tensors of LlamaForCausalLM" in line
    integers = tmp_path / "integers"
    shutil.copytree(dense, integers)
    held = load_file(integers / shard)
    name = next(iter(held))
    save_file(held | {name: held[name].to(torch.int8)}, integers / shard, {"format": "pt"})
    line = refusal(capsys, tmp_path, str(integers), "--text", str(text))
    assert f"{name} holds int8, wanted fractions" in line


@pytest.mark.parametrize("separator", [" ", "\n", 6 * " ", 30 * " "])
def test_the_first_and_last_tokens_are_those_of_the_whole_text(
    dense: Path, tmp_path: Path, separator: str
) -> None:
    from rankscope.hf import load_folder, read_numbers

    text = tmp_path / "long.txt"
    text.write_text(separator.join(f"w{number * number % 59}" for number in range(9000)))
    model = load_folder(dense)
    every = read_numbers(dense, text, model)
    for count in (1, 10, 500, 4000, 9000, 10_000):
        assert torch.equal(read_numbers(dense, text, model, first=count), every[:count])
        assert torch.equal(read_numbers(dense, text, model, last=count), every[-count:])


def test_labels_beside_inputs_are_set_aside(tmp_path: Path) -> None:
    """`evaluate` and `certify` take them from the same file."""
    from rankscope.networks.samples import read_calibration

    inputs, labels = torch.randn(5, 3), torch.arange(5)
    save_file({"inputs": inputs, "labels": labels}, tmp_path / "both.safetensors")
    (batch,) = read_calibration(str(tmp_path / "both.safetensors"), data_set=None)
    assert isinstance(batch, torch.Tensor)
    assert torch.equal(batch, inputs)
