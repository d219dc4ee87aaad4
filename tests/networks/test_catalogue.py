"""Every built-in network is built by its name, runs, and takes its weights from a file."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rankscope.auditing.embedded import embedded_model
from rankscope.errors import DataError, ModelFileError, RequestError
from rankscope.networks import BUILT_IN, build, build_trained, read_phonemes, spell

SHARED = Path(
    os.environ.get("RANKSCOPE_SHARED", Path(__file__).parents[3] / "shared" / "data")
).absolute()
MORE = Path(os.environ.get("RANKSCOPE_MORE", Path.home() / ".cache" / "rankscope-more"))

# Exact counts: published ones where somebody published them, else derived in the model's own test.
COUNTS = {
    "digits": 19_178,
    "transformer": 123_360,
    "resnet20": 269_722,
    "resnet32": 464_154,
    "resnet44": 658_586,
    "resnet56": 853_018,
    "vgg16-bn": 15_253_578,
    "wide-resnet-28-10": 36_479_194,
    "cp-digits": 18_982,
    "cp-resnet20": 267_281,
    "cp-vgg16-bn": 15_237_875,
    "cp-wide-resnet-28-10": 36_443_520,
    "lstm-language-model": 33_278 * 201 + 2 * 4 * 200 * 402,
    "small-gpt": (65 + 256) * 384 + 6 * (12 * 384**2 + 13 * 384) + 2 * 384,
    "bert-encoder": 109_482_240,
    "minilm": 22_713_216,
    "letter-to-phoneme": 834_890,
}


def example(name: str) -> torch.Tensor:
    """A batch of two that the network takes."""
    name = name.removeprefix("cp-")
    if name == "digits":
        return torch.rand(2, 1, 8, 8)
    if name.startswith(("resnet", "vgg", "wide")):
        return torch.randn(2, 3, 32, 32)
    return spell(["ab", "cde"]) if name == "letter-to-phoneme" else torch.ones(2, 4).long()


def test_every_network_has_its_count() -> None:
    usual = {name for name in BUILT_IN if not name.startswith(("lip-", "lipschitz-"))}
    assert COUNTS.keys() == usual


@pytest.mark.parametrize("name", [name for name in COUNTS if name != "bert-encoder"])
def test_a_network_has_its_count_of_parameters_and_runs(name: str) -> None:
    model = build(name).eval()
    assert sum(weight.numel() for weight in model.parameters()) == COUNTS[name]
    with torch.no_grad():
        outputs = model(example(name))
    assert len(outputs) == 2
    assert outputs.isfinite().all()


def test_bert_has_its_count_without_filling_memory() -> None:
    with torch.device("meta"):
        model = build("bert-encoder")
    assert sum(weight.numel() for weight in model.parameters()) == COUNTS["bert-encoder"]


def test_digits_come_trained() -> None:
    expected = load_file(embedded_model("cnn") / "model.safetensors")
    for model in (build("digits"), build_trained("digits")):
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, expected[name])
        assert not model.training


def test_weights_come_from_the_file_given_or_from_the_data_folder(tmp_path: Path) -> None:
    published = build("resnet20")
    (tmp_path / "resnet_cifar10").mkdir()
    path = tmp_path / "resnet_cifar10" / "resnet20.safetensors"
    save_file(published.state_dict(), path)
    for model in (
        build_trained("resnet20", weights=path),
        build_trained("resnet20", data=tmp_path),
    ):
        assert torch.equal(
            model.get_parameter("conv1.weight"), published.get_parameter("conv1.weight")
        )
        assert not model.training


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(build("resnet32").state_dict(), path)
    with pytest.raises(ModelFileError, match=r"layer1\.3\.\S+ is none of ResNet's"):
        build_trained("resnet20", weights=path)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    for builder in (build, build_trained):
        with pytest.raises(RequestError, match=r"no built-in network 'resnet19'; .* digits, "):
            builder("resnet19")


def test_a_network_without_published_weights_is_refused() -> None:
    with pytest.raises(DataError, match=r"no published weights of 'vgg16-bn' are known"):
        build_trained("vgg16-bn")


@pytest.mark.skipif(not (SHARED / "resnet_cifar10").is_dir(), reason="needs the shared data")
@pytest.mark.parametrize("depth", [20, 32, 44, 56])
def test_public_residual_weights_load_unchanged(depth: int) -> None:
    assert not build_trained(f"resnet{depth}", data=SHARED).training


@pytest.mark.skipif(not (SHARED / "g2p_en").is_dir(), reason="needs the shared data")
def test_the_public_model_pronounces_its_readmes_example() -> None:
    """A word in no dictionary, from the README of github.com/Kyubyong/g2p."""
    model = build_trained("letter-to-phoneme", data=SHARED)
    expected = ("AE2", "K", "T", "IH0", "V", "EY1", "SH", "AH0", "N", "IH0", "S", "T")
    assert read_phonemes(model(spell(["activationist"]))) == [expected]


@pytest.mark.skipif(not (MORE / "minilm").is_dir(), reason="needs MiniLM")
def test_public_minilm_weights_load_unchanged() -> None:
    assert not build_trained("minilm", data=MORE).training
