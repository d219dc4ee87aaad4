"""The embedded models are there, are what their files say, and have learned something."""

import json
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from rankscope.auditing.embedded import EMBEDDED_MODELS, embedded_model
from rankscope.errors import RequestError
from rankscope.networks import DigitsNetwork, build, build_trained, from_gpt2

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script that trained the models."""
    monkeypatch.syspath_prepend(str(ROOT))
    return import_module("examples.train_embedded_models")


def document(name: str) -> Any:
    return json.loads((embedded_model("transformer") / name).read_text(encoding="utf-8"))


def weights(name: str) -> dict[str, Tensor]:
    return load_file(embedded_model(name) / "model.safetensors")


def as_tokens(text: str) -> Tensor:
    numbers: dict[str, int] = document("vocab.json")
    return torch.tensor([numbers[character] for character in text])


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("transformer", ["config.json", "held_out.txt", "training.txt", "vocab.json"]),
        ("cnn", []),
    ],
)
def test_a_model_is_a_folder_of_the_package(name: str, files: list[str]) -> None:
    folder = resources.files("rankscope.auditing.embedded") / name
    assert embedded_model(name) == folder
    results = {path.name for path in folder.iterdir() if path.is_file()}
    assert results == {"manifest.json", "model.safetensors", *files}


def test_all_models_together_are_well_under_a_megabyte() -> None:
    files = (file for name in EMBEDDED_MODELS for file in embedded_model(name).iterdir())
    assert sum(file.stat().st_size for file in files) < 700_000


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"no model named '\.\./cnn'; .*transformer, cnn"):
        embedded_model("../cnn")


@pytest.mark.parametrize("name", EMBEDDED_MODELS)
def test_all_weights_are_finite_and_in_single_precision(name: str) -> None:
    for weight in weights(name).values():
        assert weight.dtype == torch.float32
        assert weight.isfinite().all()


@pytest.mark.parametrize("name", EMBEDDED_MODELS)
def test_the_manifest_counts_the_parameters_of_the_file(name: str) -> None:
    manifest = json.loads((embedded_model(name) / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["parameters"] == sum(weight.numel() for weight in weights(name).values())


def test_the_transformer_has_the_shapes_that_gpt2_gives_its_configuration() -> None:
    config = document("config.json")
    assert config["model_type"] == "gpt2"
    width, vocabulary = config["n_embd"], config["vocab_size"]
    assert width % config["n_head"] == 0
    expected: dict[str, tuple[int, ...]] = {
        "wte.weight": (vocabulary, width),
        "wpe.weight": (config["n_positions"], width),
    }
    norms = ["ln_f", *(f"h.{k}.ln_{j}" for k in range(config["n_layer"]) for j in (1, 2))]
    expected |= {f"{norm}.{kind}": (width,) for norm in norms for kind in ("weight", "bias")}
    maps = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}
    for k in range(config["n_layer"]):
        for name, (inputs, outputs) in maps.items():
            expected[f"h.{k}.{name}.weight"] = (inputs * width, outputs * width)
            expected[f"h.{k}.{name}.bias"] = (outputs * width,)
    assert {
        name: tuple(weight.shape) for name, weight in weights("transformer").items()
    } == expected


def test_the_vocabulary_is_every_character_of_the_texts_once() -> None:
    texts = [embedded_model("transformer") / name for name in ("training.txt", "held_out.txt")]
    characters = sorted(set("".join(text.read_text(encoding="utf-8") for text in texts)))
    assert document("vocab.json") == {character: k for k, character in enumerate(characters)}
    assert document("config.json")["vocab_size"] == len(characters)


def test_the_language_model_never_looks_ahead() -> None:
    model, tokens = build_trained("transformer"), as_tokens("Licensed under the Apache License")
    with torch.no_grad():
        whole, part = model(tokens[None]), model(tokens[None, :20])
    torch.testing.assert_close(whole[:, :20], part, rtol=1e-3, atol=1e-4)  # float32, other sums


def test_the_transformer_beats_the_bigram_on_the_part_of_the_licence_it_never_saw(
    script: Any,
) -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    unseen = licence[len(licence) * 9 // 10 :]
    folder = embedded_model("transformer")
    training = (folder / "training.txt").read_text(encoding="utf-8")
    assert training.startswith(licence[: len(licence) * 9 // 10])
    assert unseen not in training
    assert (folder / "held_out.txt").read_text(encoding="utf-8").startswith(unseen)
    bigram = script.bigram_loss(
        as_tokens(training), as_tokens(unseen), document("config.json")["vocab_size"]
    )
    assert script.model_loss(build_trained("transformer"), as_tokens(unseen)) < bigram - 0.5


def test_the_manifest_says_how_well_the_transformer_does(script: Any) -> None:
    manifest, vocabulary = document("manifest.json"), "".join(document("vocab.json"))
    held_out = script.text_tokens("held_out.txt", vocabulary)
    loss = script.model_loss(build_trained("transformer"), held_out)
    bigram = script.bigram_loss(
        script.text_tokens("training.txt", vocabulary), held_out, len(vocabulary)
    )
    assert manifest["held_out_loss"] == pytest.approx(loss, abs=1e-3)  # other machines, other sums
    assert manifest["bigram_loss"] == pytest.approx(bigram, abs=1e-3)
    assert loss < bigram


def test_the_bigram_loss_is_the_mean_negative_logarithm_of_the_smoothed_shares(
    script: Any,
) -> None:
    # After each of 0 and 1 the other always follows: counts 0.1 and 64.1 or 65.1 with smoothing.
    tokens = torch.tensor([0, 1] * 65)
    right = (64.1 / 64.2, 65.1 / 65.2)
    expected = -sum(torch.tensor(right, dtype=torch.float64).log()) / 2
    assert script.bigram_loss(tokens, tokens, 2) == pytest.approx(float(expected), rel=1e-3)


def test_the_convolutional_network_reads_more_than_97_percent_of_unseen_digits(script: Any) -> None:
    images, numbers = script.digits()
    unseen = slice(script.NUM_TRAINING_IMAGES, None)
    share = script.accuracy(build_trained("digits"), images[unseen], numbers[unseen])
    assert len(numbers) == 1797
    assert share > 0.97
    manifest = json.loads((embedded_model("cnn") / "manifest.json").read_text(encoding="utf-8"))
    assert share == pytest.approx(manifest["test_accuracy"], abs=0.003)  # one image of 360


@pytest.mark.slow
def test_the_script_writes_the_same_bytes_twice_and_files_that_load(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = []
    for run in ("first", "second"):
        script.train_transformer(tmp_path / run / "transformer", num_steps=3)
        script.train_cnn(tmp_path / run / "cnn", num_epochs=1)
        files = sorted(path for path in (tmp_path / run).rglob("*") if path.is_file())
        written.append({path.relative_to(tmp_path / run): path.read_bytes() for path in files})
    assert written[0] == written[1]
    assert len(written[0]) == 6
    config = json.loads(written[0][Path("transformer/config.json")])
    assert config == document("config.json")
    first = tmp_path / "first"
    weights = from_gpt2(load_file(first / "transformer/model.safetensors"))
    build("transformer").load_state_dict({**weights, "head.weight": weights["tokens.weight"]})
    DigitsNetwork().load_state_dict(load_file(first / "cnn/model.safetensors"))
    assert "held_out_loss" in capsys.readouterr().out
