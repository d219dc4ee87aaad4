"""One word MODEL: what it resolves to, and what a command says of a kind it cannot use."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import rankscope
from rankscope.cli.main import COMMANDS, main
from rankscope.diagrams import to_dict
from rankscope.diagrams.families import FAMILIES, build_family
from rankscope.errors import ImportPathError, ModelFileError, RankscopeError, RequestError
from rankscope.models import catalogue, open_model
from rankscope.networks import BUILT_IN
from rankscope.rank import CATALOGUE, TensorTrain, known_options, read_settings

GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 16}


def test_one_name_has_one_entry() -> None:
    entries = catalogue()
    assert set(entries) == {*BUILT_IN, *CATALOGUE, *FAMILIES}
    train = entries["tensor-train"]
    assert train.is_exact
    assert train.family is FAMILIES["tensor-train"]
    assert not BUILT_IN.keys() & (CATALOGUE.keys() | FAMILIES.keys())


@pytest.mark.parametrize("name", catalogue())
def test_every_name_opens_and_says_who_can_use_it(name: str) -> None:
    model = open_model(name)
    assert model.name == name
    assert {"draw", "cost"} <= set(model.commands) <= set(COMMANDS)


def test_a_tensor_train_has_a_diagram_and_an_exact_network_of_the_same_sizes() -> None:
    for bond in ("rank", "bond"):
        model = open_model("tensor-train", settings={"order": 4, "size": 3, bond: 2})
        assert model.diagram.sizes["r1"] == 2  # type: ignore[union-attr]
        assert isinstance(model.network, TensorTrain)
        assert model.network.settings["bond"] == 2
    with pytest.raises(rankscope.RankscopeError, match="bond is another word for rank"):
        _ = open_model("tensor-train", settings={"rank": 2, "bond": 3}).diagram


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_exact_network_has_a_picture_without_sizes_and_a_diagram_with_them(name: str) -> None:
    assert open_model(name).picture.name
    if name not in FAMILIES:
        with pytest.raises(RequestError, match=f"{name} needs .*; it takes "):
            _ = open_model(name).diagram
        words = {setting: word for word, setting in CATALOGUE[name].options.items()}
        settings = {words[key]: value for key, value in CATALOGUE[name].example.items()}
        assert open_model(name, settings=settings).diagram == open_model(name).picture


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_example_of_an_exact_network_can_be_written_as_text(name: str) -> None:
    entry = CATALOGUE[name]
    texts = {
        word: ";".join(",".join(map(str, row)) for row in rows)
        for word, setting in entry.options.items()
        if setting in entry.example
        for rows in [_rows(entry.example[setting])]
    }
    assert read_settings(name, texts) == dict(entry.example)
    assert set(entry.options) <= set(known_options())


def _rows(value: object) -> list[list[int | str]]:
    if isinstance(value, int | str):
        return [[value]]
    assert isinstance(value, tuple)
    return [list(row) for row in value] if isinstance(value[0], tuple) else [list(value)]


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        (
            "rank multi-head",
            "'multi-head' is a family of diagrams, which has a diagram. It can be given to: draw, ",
        ),
        (
            "compress attention --dry-run",
            "compress needs a trained module, but 'attention' is an exact network, which has a",
        ),
        ("bounds digits", "bounds needs an exact network, but 'digits' is a built-in network"),
        ("audit ij,jk->ik", "audit needs weights or a configuration, but 'ij,jk->ik' is an einsum"),
        ("certify cp --data digits", "certify needs a trained module, but 'cp' is a family"),
        ("generalization cp --data digits", "generalization needs a trained module, but 'cp' is"),
        ("draw config.json", "draw needs a diagram, but 'config.json' is a configuration, which"),
        ("cost w.safetensors", "cost needs a diagram, but 'w.safetensors' is a file of weights"),
        ("cut sums:make --left a --right b", "cut needs a diagram, but 'sums:make' is a function"),
        ("draw cp --depth 1", "--depth draws the outline of nested modules, but 'cp' is a family"),
    ],
)
def test_a_command_refuses_what_it_cannot_use_in_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, refusal: str
) -> None:
    Path("config.json").write_text(json.dumps(GPT2))
    save_file({"weight": torch.ones(2, 2)}, tmp_path / "w.safetensors")
    Path("sums.py").write_text("def make():\n    return sum\n")
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert refusal in said
    assert said.count("\n") == 1


def test_kinds_have_what_they_say() -> None:
    Path("config.json").write_text(json.dumps(GPT2))
    Path("product.json").write_text(json.dumps(to_dict(build_family("matrix-product", {"I": 2}))))
    configuration = open_model("config.json")
    assert (configuration.kind, configuration.weights) == ("configuration", None)
    assert configuration.configuration == GPT2
    saved = open_model(Path("product.json"), settings={"J": 3})
    assert (saved.kind, saved.diagram.name) == ("diagram", "matrix-product")
    digits = open_model("digits")
    assert digits.module(digits.example).shape == (1, 10)
    assert not digits.module.training
    assert digits.weights is not None
    assert len(digits.weights.entries) == 8
    transformer = open_model("transformer")
    assert transformer.configuration is not None
    assert transformer.configuration["model_type"] == "gpt2"


def test_a_module_is_opened_as_it_is() -> None:
    layer = nn.Linear(4, 3)
    model = open_model(layer, inputs=[(2, 4)])
    assert (model.kind, model.module) == ("module", layer)
    assert model.diagram.name == "Linear"
    assert open_model(model) is model
    with pytest.raises(RequestError, match="Linear is a module: give the shape of its input"):
        _ = open_model(layer).diagram
    network = rankscope.SelfAttention(depth=1, width=2)
    assert open_model(network).network is network
    with pytest.raises(ImportPathError, match="gives a int, wanted a torch"):
        open_model(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_what_compress_wrote_is_a_model(tmp_path: Path) -> None:
    model = open_model("digits")
    small = rankscope.compress(model.module, keep=0.5)
    rankscope.save(small, "small", built_in="digits")
    again = open_model("small")
    assert (again.kind, again.data_set) == ("compressed model", "digits")
    torch.testing.assert_close(again.module(again.example), small.model(again.example))
    assert rankscope.audit("small").parameters.total <= 0.5 * 19178
    rankscope.save(nn.Linear(4, 3), tmp_path / "own")
    assert open_model(tmp_path / "own").commands == ["audit", "diff"]


def test_a_module_is_saved_as_it_is_and_loaded_into_another(tmp_path: Path) -> None:
    layer, other = nn.Linear(4, 3), nn.Linear(4, 3)
    rankscope.save(layer, tmp_path / "layer", dense=layer, example=torch.ones(1, 4))
    loaded = rankscope.load(tmp_path / "layer", into=other)
    torch.testing.assert_close(loaded(torch.ones(1, 4)), layer(torch.ones(1, 4)))


@pytest.mark.slow
def test_generalization_takes_a_word_and_tensors() -> None:
    inputs = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        labels = open_model("digits").module(inputs).argmax(dim=1)
    bounded = rankscope.bound_generalization("digits", (inputs, labels), 1.0, samples=4)
    assert bounded.to_dict()["samples"] == 4


def test_an_unknown_word_has_near_ones_and_a_missing_file_its_reason() -> None:
    with pytest.raises(RequestError, match=r"no model 'multi-haed'. Did you mean multi-head"):
        open_model("multi-haed")
    with pytest.raises(ModelFileError, match="Cannot read 'absent"):
        open_model("absent.safetensors")


def test_a_name_of_the_hub_that_is_not_in_the_cache_is_refused_with_the_way_to_get_it() -> None:
    with pytest.raises(RequestError, match=r"cache; .*`hf download someone/unheard`"):
        open_model("someone/unheard")


def test_options_that_do_not_apply_are_refused() -> None:
    with pytest.raises(RequestError, match="--set does not apply to the built-in network 'digits'"):
        open_model("digits", settings={"depth": 2})
    with pytest.raises(RequestError, match="--parameter does not apply to the exact network"):
        open_model("attention", parameters=[0])
    with pytest.raises(RequestError, match="--weights does not apply to the einsum 'ij,jk->ik'"):
        open_model("ij,jk->ik", weights="w.safetensors")
    with pytest.raises(RequestError, match="--input does not apply to the model that is open"):
        open_model(open_model("cp"), inputs=[(1, 2)])


@pytest.mark.parametrize("word", ["multi-head", "tensor-train", "ij,jk->ik", "config.json"])
def test_kinds_without_torch_never_load_it(word: str) -> None:
    Path("config.json").write_text(json.dumps(GPT2))
    code = (
        "import sys; from rankscope.models import open_model;"
        f"model = open_model({word!r}); model.commands;"
        "model.diagram if 'draw' in model.commands else model.configuration;"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "False"


def test_flags_are_shown_without_a_type(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["draw", "-h"], ["rank", "-h"], ["experiment", "run", "-h"]):
        assert main(arguments) == 0
        assert "<bool>" not in capsys.readouterr().out


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["digits"]["kind"] == "built-in network"
    assert listed["tensor-train"]["commands"] == ["draw", "cost", "cut", "code", "rank", "bounds"]
    assert main(["models"]) == 0
    assert "mixed-polynomial" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "options", "settings"),
    [
        (
            "mixed-polynomial",
            "--inputs 4 --width 3 --degrees 2,2 --raised 1,0",
            {"num_inputs": 4, "width": 3, "degrees": (2, 2), "raised": (1, 0)},
        ),
        (
            "mixer",
            "--tokens 4 --input-size 2 --width 2 --token-hidden 2 --channel-hidden 3 --depth 1",
            dict(CATALOGUE["mixer"].example) | {"num_tokens": 4},
        ),
        ("sparse-polynomial", "--terms 1,0;0,2", {"terms": ((1, 0), (0, 2))}),
        (
            "tensor-train",
            "--order 4 --size 2 --bond 2,3,2",
            {"order": 4, "size": 2, "bond": (2, 3, 2)},
        ),
        (
            "attention",
            "--depth 1 --width 2 --positions",
            {"depth": 1, "width": 2, "has_positions": True},
        ),
    ],
)
def test_every_network_of_the_catalogue_is_measured_from_the_command_line(
    capsys: pytest.CaptureFixture[str], name: str, options: str, settings: dict[str, object]
) -> None:
    network = CATALOGUE[name].network_class()(**settings)
    split = rankscope.Partition.interleaved(network.num_positions)
    measured = rankscope.measure_rank(network, split)
    assert main(["rank", name, *options.split(), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    timed = {"seconds": document["seconds"]}
    assert document == measured.to_dict() | timed


@pytest.mark.parametrize("word", ["ij,jk->ik" + ",ij" * 200 + ";", "a\0b", "x" * 5000])
def test_a_word_that_no_path_can_be_is_refused_in_words(word: str) -> None:
    with pytest.raises(RankscopeError):
        _ = open_model(word).diagram
