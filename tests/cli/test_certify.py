"""`rankscope certify` from the command line."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.cli.conftest import answer_of, refusal_of

from rankscope.cli.main import main
from rankscope.errors import OutputError, RequestError
from rankscope.extras import transformers as load_transformers
from rankscope.models import open_model
from rankscope.networks import (
    DataSet,
    LabelledSamples,
    Normalization,
    TensorData,
    build,
    read_labelled,
)
from rankscope.networks import samples as training_samples
from rankscope.verbs import certify_robustness

FACTORY = """
import torch
from torch import nn

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

def offset():
    # Both signs of x - 1/2, by way of 65536: float32 rounds x to multiples of 1/128.
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    weights = [[[1.0]], [65536.0], [[1.0], [-1.0]], [-65536.5, 65536.5]]
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), weights, strict=True):
            parameter.copy_(torch.tensor(values))
    return model

def double():
    return offset().double()
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name = f"own_classifiers_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(FACTORY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return f"{name}:network"


@pytest.fixture
def labelled(tmp_path: Path) -> str:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "inputs": torch.rand(9, 6, generator=generator),
        "labels": torch.randint(3, (9,), generator=generator),
    }
    save_file(tensors, tmp_path / "samples.safetensors")
    return str(tmp_path / "samples.safetensors")


answer, refusal = partial(answer_of, "certify"), partial(refusal_of, "certify")


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize(
    "method", ["lipschitz", "intervals", "linear-bounds", "linear-bounds-fast"]
)
def test_a_model_of_ones_own_is_certified_by_every_method(
    capsys: pytest.CaptureFixture[str], factory: str, labelled: str, norm: str, method: str
) -> None:
    options = ("--radius", "1/255", "--radius", "0.2", "--norm", norm, "--method", method)
    found = answer(capsys, factory, "--data", labelled, *options, "--steps", "5")
    assert [row["radius"] for row in found["radii"]] == [1 / 255, 0.2]
    for row in found["radii"]:
        assert row["certified"] <= row["attacked"] <= found["clean"]
    assert (found["norm"], found["samples"]) == (norm, 9)
    assert (found["lipschitz"] is None) == (method != "lipschitz")


def test_people_get_a_table_and_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str, labelled: str
) -> None:
    folder = tmp_path / "new" / "folder"
    command = ["certify", factory, "--data", labelled, "--samples", "4", "-o", str(folder)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "of 4 samples; l2, lipschitz, Lipschitz constant <= " in printed
    assert "0.1412" in printed  # 36/255, which is the first by default
    assert "between certified and attacked" in printed
    document = json.loads((folder / "certification.json").read_text(encoding="utf-8"))
    assert len(document["radii"]) == 3
    assert (folder / "certification.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
def test_lipschitz_networks_take_weights_and_are_held_to_their_constant(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network = build("lipschitz-digits")
    weights = tmp_path / "weights.safetensors"
    save_file({k: v.contiguous() for k, v in network.state_dict().items()}, weights)
    options = ("--data", "digits", "--samples", "5", "--radius", "0.001", "--steps", "3")
    found = answer(capsys, "lipschitz-digits", "--weights", str(weights), *options)
    assert found["lipschitz"] == pytest.approx(1.0, abs=1e-3)
    assert "untrained; give its weights" in refusal(capsys, "lipschitz-digits", *options)


@pytest.mark.slow
def test_the_scaling_of_a_data_set_counts() -> None:
    """A built-in network sees scaled pixels; radii are those of pixels in 0..1."""
    pixels = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    scaling = Normalization((0.5,), (0.25,))
    network = open_model("digits").module
    with torch.no_grad():
        labels = network((pixels - 0.5) / 0.25).argmax(dim=1)
    samples = LabelledSamples(pixels, labels, scaling)
    assert certify_robustness("digits", samples, [0.0]).clean == 1.0
    plain = certify_robustness("digits", (pixels, labels), [1e-4])
    scaled = certify_robustness("digits", samples, [1e-4])
    assert plain.lipschitz is not None
    assert scaled.lipschitz == pytest.approx(4 * plain.lipschitz)


def test_pixels_of_a_data_set_lie_in_0_to_1(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = torch.randint(256, (3, 1, 8, 8), dtype=torch.uint8)
    test = TensorData(pixels, torch.tensor([0, 1, 2]), None, Normalization((0.5,), (0.25,)))
    data = DataSet("digits", test, test, num_classes=10)
    monkeypatch.setattr(training_samples, "load_data_set", lambda name, folder: data)
    samples = read_labelled("digits", data_set="digits", count=2)
    assert torch.equal(samples.inputs, pixels[:2].float() / 255)
    assert samples.normalize == test.normalize


def test_data_without_labels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unlabelled = TensorData(torch.rand(3, 1, 8, 8))
    data = DataSet("digits", unlabelled, unlabelled, num_classes=10)
    monkeypatch.setattr(training_samples, "load_data_set", lambda name, folder: data)
    with pytest.raises(RequestError, match="--data: digits has no labels"):
        read_labelled("digits", data_set="digits")


def test_a_folder_holds_the_data_set_of_a_built_in_network(tmp_path: Path) -> None:
    samples = read_labelled(str(tmp_path), data_set="digits", count=3)
    assert samples.inputs.shape == (3, 1, 8, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--radius", "one"), "--radius takes a number or a quotient, got 'one'"),
        (("--radius", "1/0"), "got '1/0'"),
        (("--radius=-1",), r"--radius takes 0 to 1e\+18, got '-1'"),
        (("--norm", "l1"), "--norm takes one of l2, linf, got 'l1'"),
        (("--method", "magic"), "--method takes one of lipschitz, .*, got 'magic'"),
        (("--pixels", "0"), "--pixels takes two numbers like 0,1, or any; got '0'"),
        (("--pixels", "1,0"), "a smaller and a larger number, got '1,0'"),
        (("--pixels", "0.5,0.6"), "Inputs must lie within 0.5 to 0.6"),
        (("--dtype", "float8"), "--dtype takes one of float32, float64, .*, got 'float8'"),
    ],
)
def test_wrong_options_are_refused(
    capsys: pytest.CaptureFixture[str],
    factory: str,
    labelled: str,
    options: tuple[str, ...],
    message: str,
) -> None:
    assert re.search(message, refusal(capsys, factory, "--data", labelled, *options))


def test_data_that_do_not_fit_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str
) -> None:
    assert "got 'nothing'" in refusal(capsys, factory, "--data", "nothing")
    assert "built-in network, or a file" in refusal(capsys, factory, "--data", str(tmp_path))
    save_file({"inputs": torch.rand(2, 6)}, tmp_path / "half.safetensors")
    message = refusal(capsys, factory, "--data", str(tmp_path / "half.safetensors"))
    assert "must hold 'inputs' and integer 'labels', got inputs (torch.float32)" in message


def test_what_rounding_costs_is_said_with_the_command_that_gets_it_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str
) -> None:
    model, data = factory.replace("network", "offset"), str(tmp_path / "one.safetensors")
    save_file({"inputs": torch.tensor([[0.43]]), "labels": torch.tensor([1])}, data)
    words = [model, "--data", data, "--radius", "0.066094007", "--steps", "1"]
    assert main(["certify", *words]) == 0
    *_, advice, command = capsys.readouterr().out.splitlines()
    assert "keeps 100.00% of the samples from a certificate at radius 0.06609;" in advice
    assert shlex.split(command) == ["$", "rankscope", "certify", *words, "--dtype", "float64"]
    found = answer(capsys, *shlex.split(command)[3:])
    assert found["arithmetic"] == "float64"
    assert found["radii"][0]["certified"] == found["radii"][0]["attacked"] == 1
    # Nothing to say where nothing is lost.
    assert main(shlex.split(command)[2:]) == 0
    assert "as it runs in float64" in capsys.readouterr().out.splitlines()[-1]


def test_a_file_keeps_its_digits_for_a_model_that_has_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str
) -> None:
    """Just below 1/2, where the label changes; rounded to float32 it would be 1/2."""
    model, data = factory.replace("network", "double"), str(tmp_path / "one.safetensors")
    inputs = torch.tensor([[0.5 - 1e-9]], dtype=torch.float64)
    save_file({"inputs": inputs, "labels": torch.tensor([1])}, data)
    found = answer(capsys, model, "--data", data, "--radius", "5e-10", "--radius", "2e-9")
    assert (found["clean"], found["arithmetic"]) == (1, "float64")
    assert [row["certified"] for row in found["radii"]] == [1, 0]
    found = answer(capsys, model, "--data", data, "--radius", "0", "--dtype", "float32")
    assert (found["clean"], found["arithmetic"]) == (0, "float32")


def test_limits_can_be_given_up(
    capsys: pytest.CaptureFixture[str], factory: str, labelled: str
) -> None:
    found = answer(capsys, factory, "--data", labelled, "--pixels", "any", "--radius", "0.1")
    assert len(found["radii"]) == 1


def test_a_folder_that_cannot_be_made_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str, labelled: str
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    message = refusal(capsys, factory, "--data", labelled, "-o", str(tmp_path / "file" / "x"))
    assert "Cannot make the folder" in message
    assert OutputError.exit_code == 2


@pytest.mark.slow
def test_a_folder_of_transformers_is_certified_by_its_logits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    transformers = load_transformers()
    transformers.utils.logging.disable_progress_bar()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 3}
    torch.manual_seed(0)
    bert = transformers.BertConfig(
        **sizes, intermediate_size=12, vocab_size=20, max_position_embeddings=8
    )
    vit = transformers.ViTConfig(**sizes, intermediate_size=12, image_size=8, patch_size=4)
    inputs = {"vit": torch.rand(2, 3, 8, 8), "bert": torch.rand(2, 4, 8)}
    models = {
        "vit": transformers.ViTForImageClassification(vit),
        "bert": transformers.BertForSequenceClassification(bert),
    }
    for name, model in models.items():
        folder, file = str(tmp_path / name), str(tmp_path / f"{name}.safetensors")
        model.eval().save_pretrained(folder)
        key = "pixel_values" if name == "vit" else "inputs_embeds"
        labels = model(**{key: inputs[name]}).logits.argmax(1)
        save_file({"inputs": inputs[name], "labels": labels}, file)
        options = ("--norm", "linf", "--method", "linear-bounds", "--steps", "2", "--radius")
        found = answer(capsys, folder, "--data", file, *options, "1e-6")
        assert found["clean"] == 1
        (row,) = found["radii"]
        assert 0 < row["certified"] <= row["attacked"]
