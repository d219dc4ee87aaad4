"""Compressed models of transformers: they run, and come back from their folders to the bit."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rankscope import audit
from rankscope.extras import transformers as load_transformers

transformers = load_transformers()

from rankscope.compression import Inputs, Row, Text, compress, evaluate, observe, read_sites  # noqa: E402
from rankscope.compression.candidates import factorize  # noqa: E402
from rankscope.errors import CompressionError, ModelFileError  # noqa: E402
from rankscope.factorize import STORED_FORMATS, FactorizedLinear, WeightShape  # noqa: E402
from rankscope.hf import load_folder, save_folder  # noqa: E402

transformers.utils.logging.disable_progress_bar()

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 80,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
DECODER = SMALL | {"num_key_value_heads": 2, "head_dim": 8}
IMAGE = {key: SMALL[key] for key in list(SMALL)[:4]} | {"image_size": 16, "patch_size": 4}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 80, "n_positions": 32} | {
    key: SMALL[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")
}
LATENT = {
    "kv_lora_rank": 8,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 80}
OPT = {"ffn_dim": 48, "word_embed_proj_dim": 32}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", DECODER | {"tie_word_embeddings": True}),
    "Mistral": ("MistralForCausalLM", "MistralConfig", DECODER),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3Config", DECODER),
    "Gemma-2": ("Gemma2ForCausalLM", "Gemma2Config", DECODER),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL),
    "Phi": ("PhiForCausalLM", "PhiConfig", SMALL),
    "OPT": ("OPTForCausalLM", "OPTConfig", SMALL | OPT),
    "Mixtral": ("MixtralForCausalLM", "MixtralConfig", DECODER | {"num_local_experts": 4}),
    "Qwen3-MoE": (
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        DECODER | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    ),
    "DeepSeek-V2": ("DeepseekV2ForCausalLM", "DeepseekV2Config", SMALL | LATENT),
    "BERT": ("BertForMaskedLM", "BertConfig", SMALL),
    "T5": ("T5ForConditionalGeneration", "T5Config", T5),
    "ViT": ("ViTForImageClassification", "ViTConfig", IMAGE),
    "CLIP": (
        "CLIPModel",
        "CLIPConfig",
        {"text_config": SMALL, "vision_config": IMAGE, "projection_dim": 16},
    ),
}


PACKED = ("Mixtral", "Qwen3-MoE", "DeepSeek-V2")  # one tensor over all experts


def make(name: str) -> Any:
    model, config, options = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**options)).eval()


def example(name: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = {"input_ids": torch.randint(3, 80, (2, 9), generator=generator)}
    pixels = {"pixel_values": torch.rand(2, 3, 16, 16, generator=generator)}
    match name:
        case "ViT":
            return pixels
        case "CLIP":
            return tokens | pixels
        case "T5":
            return tokens | {"decoder_input_ids": tokens["input_ids"][:, :4]}
    return tokens


def outputs(model: nn.Module, inputs: dict[str, Tensor]) -> list[Tensor]:
    with torch.no_grad():
        given = model(**inputs).to_tuple()
    return [part for part in given if isinstance(part, Tensor)]


def difference(one: nn.Module, other: nn.Module, inputs: dict[str, Tensor]) -> float:
    pairs = list(zip(outputs(one, inputs), outputs(other, inputs), strict=True))
    assert pairs
    return max(float((first - second).abs().max()) for first, second in pairs)


def is_causal(name: str) -> bool:
    return name not in ("BERT", "T5", "ViT", "CLIP")


@pytest.mark.parametrize("name", MODELS)
def test_a_compressed_model_comes_back_from_its_folder(name: str, tmp_path: Path) -> None:
    dense, inputs = make(name), example(name)
    small = compress(dense, 0.5 if name in PACKED else 0.6)
    written = {row.name: row.format for row in small.plan.rows if row.format is not None}
    assert (name in PACKED) == any("experts.gate_up_proj" in each for each in written)
    assert difference(dense, small.model, inputs) > 0
    small.model.save_pretrained(tmp_path)  # type: ignore[operator]
    auto = type(dense)
    back, info = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert difference(small.model, back, inputs) == 0
    tokens = inputs["input_ids"].flatten() if is_causal(name) else None
    task = Inputs(inputs) if tokens is None else Text(tokens, context=6)
    evaluated = evaluate(back, task, dense=dense, repeats=1)
    assert evaluated.model.parameters < dense.num_parameters()
    assert (evaluated.model.perplexity is None) == (tokens is None)
    stored = (tmp_path / "model.safetensors").stat().st_size
    assert stored < 0.9 * 4 * sum(weight.numel() for weight in dense.parameters()) + 2**14


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("saved")
    small = compress(make("Llama"), 0.6)
    small.model.save_pretrained(folder)  # type: ignore[operator]
    return folder


def run_python(code: str) -> str:
    """What a process prints that has never imported rankscope.hf."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout.strip()


PLAIN = """
from rankscope.extras import transformers
auto = transformers().AutoModelForCausalLM
try:
    auto.from_pretrained({folder!r})
    print("loaded")
except RuntimeError as error:
    print("refused", "ignore_mismatched_sizes" in str(error))
import rankscope.hf
model = auto.from_pretrained({folder!r})
print(type(model.lm_head).__name__)
"""


@pytest.mark.slow
def test_without_the_import_transformers_raises_instead_of_random_weights(saved: Path) -> None:
    assert run_python(PLAIN.format(folder=str(saved))) == "refused True\nFactorizedLinear"


@pytest.mark.slow
def test_the_model_generates_casts_compiles_and_is_placed(saved: Path, tmp_path: Path) -> None:
    auto = transformers.AutoModelForCausalLM
    model, inputs = auto.from_pretrained(saved), example("Llama")
    tokens = model.generate(**inputs, max_new_tokens=3, do_sample=False)
    assert tokens.shape == (2, 12)
    half = auto.from_pretrained(saved, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    assert outputs(half, inputs)[0].dtype == torch.bfloat16
    assert model.to(torch.bfloat16).float().dtype == torch.float32
    placed = auto.from_pretrained(saved, device_map="cpu")
    again = auto.from_pretrained(saved)
    again.load_state_dict(placed.state_dict())
    assert difference(again, placed, inputs) == 0
    compiled: Any = torch.compile(placed, backend="eager")
    torch.testing.assert_close(outputs(compiled, inputs)[0], outputs(placed, inputs)[0])
    inner = (f"model.{name}" for name in ("embed_tokens", "norm", "rotary_emb"))
    parts = {"model.layers": "disk", **dict.fromkeys((*inner, "lm_head"), "cpu")}
    with pytest.raises(CompressionError, match="tensors are offloaded, such as "):
        auto.from_pretrained(saved, device_map=parts, offload_folder=tmp_path)


def test_a_model_that_was_trained_on_is_saved_as_it_is(saved: Path, tmp_path: Path) -> None:
    model, inputs = transformers.AutoModelForCausalLM.from_pretrained(saved), example("Llama")
    model(**inputs, labels=inputs["input_ids"]).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    model.save_pretrained(tmp_path)
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert difference(model, back, inputs) == 0


def test_the_base_model_of_a_folder_is_compressed_too(saved: Path) -> None:
    whole = transformers.AutoModelForCausalLM.from_pretrained(saved)
    base = transformers.AutoModel.from_pretrained(saved)
    assert difference(whole.model, base, example("Llama")) == 0


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_cores_come_back(bits: int, tmp_path: Path) -> None:
    small = compress(make("Llama"), 0.5, bits=(bits,))
    assert bits in {row.bits for row in small.plan.rows}
    save_folder(small, tmp_path / "out", example=example("Llama"))
    assert difference(small.model, load_folder(tmp_path / "out"), example("Llama")) == 0


@pytest.mark.slow
def test_uses_of_a_tied_table_are_counted_as_lookups_and_products() -> None:
    model = make("Llama")
    small = compress(model, 0.6, example=example("Llama"), formats=[STORED_FORMATS["svd"]])
    (row,) = [row for row in small.plan.rows if row.name == "model.embed_tokens"]
    (table,) = [site for site in read_sites(model).sites if site.name == row.name]
    calls = observe(model, (table,), example("Llama")).calls[row.name]
    assert [(call.samples, call.looks_up) for call in calls] == [(18, True), (18, False)]
    assert outputs(small.model, example("Llama"))[0].shape == (2, 9, 80)


def damaged(saved: Path, folder: Path, tensors: dict[str, Tensor]) -> Path:
    """The saved folder with some tensors changed; None of a name leaves it out."""
    shutil.copytree(saved, folder)
    state = load_file(saved / "model.safetensors") | tensors
    kept = {name: tensor for name, tensor in state.items() if tensor.numel()}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_plan_and_weights_that_do_not_fit_are_refused(saved: Path, tmp_path: Path) -> None:
    state = load_file(saved / "model.safetensors")
    core = next(name for name in state if name.endswith("cores.right"))
    lacking = damaged(saved, tmp_path / "lacking", {core: torch.zeros(0)})
    with pytest.raises(ModelFileError, match=f"1 tensors are not in its files, such as {core}"):
        load_folder(lacking)
    rank = len(state[core])
    larger = damaged(saved, tmp_path / "larger", {core: torch.zeros(rank + 1, 32)})
    with pytest.raises(ModelFileError, match=rf"of shape \({rank + 1}, 32\), wanted fractions"):
        load_folder(larger)
    whole = damaged(saved, tmp_path / "whole", {core: state[core].to(torch.int32)})
    with pytest.raises(ModelFileError, match=r"holds torch\.int32 of shape"):
        load_folder(whole)
    norm = damaged(saved, tmp_path / "norm", {"model.norm.weight": torch.zeros(0)})
    with pytest.raises(ModelFileError, match=r"such as model\.norm\.weight"):
        load_folder(norm)


def test_a_plan_for_another_model_is_refused(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "other")
    path = tmp_path / "other" / "config.json"
    document = json.loads(path.read_text())
    for wanted, change in {
        "the plan is for a weight of shape": {"intermediate_size": 40},
        "quantization_config is no plan": {"quantization_config": {"quant_method": "rankscope"}},
    }.items():
        path.write_text(json.dumps(document | change))
        with pytest.raises((CompressionError, ModelFileError), match=wanted):
            load_folder(tmp_path / "other")


def test_code_of_a_folder_is_never_run(saved: Path, tmp_path: Path) -> None:
    document = json.loads((saved / "config.json").read_text())
    own = {"architectures": ["OwnModel"], "auto_map": {"AutoModel": "own.OwnModel"}}
    (tmp_path / "config.json").write_text(json.dumps(document | own))
    with pytest.raises(ModelFileError, match="has no model 'OwnModel'; code that comes with"):
        load_folder(tmp_path)


@pytest.mark.parametrize("is_named", [True, False])
def test_pickles_of_a_folder_are_interpreted_and_never_loaded(
    is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = make("Llama") if is_named else make("Llama").model
    assert isinstance(dense, transformers.PreTrainedModel)
    document = dense.config.to_dict() | {"architectures": None}
    if is_named:
        document["architectures"] = ["LlamaForCausalLM"]
    (tmp_path / "config.json").write_text(json.dumps(document))
    # torch.load would make these bytes before it looks at what they are for.
    hidden = {"large": Reduced(bytearray, 3_000_000_000)}
    torch.save(dense.state_dict() | hidden, tmp_path / "pytorch_model.bin")

    def load(*_: object, **__: object) -> None:
        raise AssertionError("torch.load was called")

    monkeypatch.setattr(torch, "load", load)
    assert difference(dense, load_folder(tmp_path), example("Llama")) == 0


class Reduced:
    """An object that a pickle makes by a call."""

    def __init__(self, make: type, size: int) -> None:
        self._call = (make, (size,))

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return self._call


def test_weights_elsewhere_are_refused(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "folder")
    folder = tmp_path / "folder"
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}')
    with pytest.raises(ModelFileError, match=r"holds adapter_config\.json: an adapter of another"):
        load_folder(folder)
    document = json.loads((folder / "config.json").read_text())
    document["transformers_weights"] = "adapter_model.bin"
    (folder / "config.json").write_text(json.dumps(document))
    with pytest.raises(ModelFileError, match="names weights by transformers_weights"):
        load_folder(folder)


def test_a_folder_that_is_written_again_is_never_a_mixture(tmp_path: Path) -> None:
    for keep in (0.8, 0.5):
        small = compress(make("Qwen3"), keep)
        save_folder(small, tmp_path / "out", example=example("Qwen3"))
    assert difference(small.model, load_folder(tmp_path / "out"), example("Qwen3")) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_lora_attaches_to_factorized_layers(saved: Path) -> None:
    import peft

    model, inputs = transformers.AutoModelForCausalLM.from_pretrained(saved), example("Llama")
    before = outputs(model, inputs)[0]
    factorized = [
        name
        for name, module in model.named_modules()
        if isinstance(module, FactorizedLinear) and "layers" in name
    ]
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=factorized))
    torch.testing.assert_close(outputs(adapted, inputs)[0], before)  # it starts with zeros
    adapted(**inputs, labels=inputs["input_ids"]).loss.backward()
    trained = [name for name, part in adapted.named_parameters() if part.grad is not None]
    assert len(trained) == 2 * len(factorized) > 0
    with pytest.raises(CompressionError, match="LoRA cannot be merged into the cores of a layer"):
        adapted.merge_adapter()


def test_what_is_compressed_is_not_compressed_again(saved: Path) -> None:
    with pytest.raises(CompressionError, match="LlamaForCausalLM is compressed or quantized"):
        compress(load_folder(saved), 0.9)


def test_an_audit_counts_what_a_compressed_folder_holds(saved: Path) -> None:
    held = sum(parameter.numel() for parameter in load_folder(saved).parameters())
    assert audit(saved).parameters.total == held


@pytest.mark.parametrize("name", ["svd", "cp", "tucker", "tensor-train", "svd-each"])
@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_packed_experts_in_full_ranks_are_the_dense_ones(name: str, data: st.DataObject) -> None:
    count, inner, width = (data.draw(st.integers(2, 4)) for _ in range(3))
    sizes = {"num_local_experts": count, "intermediate_size": inner, "hidden_size": width}
    config = transformers.MixtralConfig(**sizes, num_attention_heads=1)
    config._experts_implementation = "eager"
    dense = transformers.models.mixtral.modeling_mixtral.MixtralExperts(config)
    torch.manual_seed(data.draw(st.integers(0, 99)))
    for parameter in dense.parameters():
        nn.init.normal_(parameter)
    format = STORED_FORMATS[name]
    rows = {}
    for part, sides in {"gate_up_proj": (2 * inner, width), "down_proj": (width, inner)}.items():
        shape = WeightShape(*sides, (count,))
        ranks = format.full_ranks(shape)
        rows[part] = Row(part, "Experts", shape.sizes, name, ranks, 32, 0, 0, 0.0, "")
    layer = factorize(dense, rows, {})
    tokens = torch.randn(6, width)
    chosen = torch.stack([torch.randperm(count)[:2] for _ in range(6)])
    shares = torch.rand(6, 2)
    torch.testing.assert_close(
        layer(tokens, chosen, shares), dense(tokens, chosen, shares), rtol=1e-3, atol=1e-3
    )
    back = layer.to_dense()
    for part, parameter in dense.named_parameters():
        torch.testing.assert_close(back.get_parameter(part), parameter, rtol=1e-3, atol=1e-3)


def test_experts_in_common_spaces_are_written_together_and_others_apart() -> None:
    # Planted: in the first layer all experts map one space of 4 features into another one, in the
    # second each has two spaces of 2 features of its own.
    dense = make("Mixtral")
    with torch.no_grad():
        for number, layer in enumerate(dense.model.layers):
            for part in layer.mlp.experts.parameters():
                count, rows, columns = part.shape
                if number:
                    part.copy_(torch.randn(count, rows, 2) @ torch.randn(count, 2, columns))
                else:
                    inner = torch.randn(count, 4, 4)
                    part.copy_(torch.randn(rows, 4) @ inner @ torch.randn(4, columns))
    formats = [STORED_FORMATS[name] for name in ("svd", "tucker")]
    plan = compress(dense, formats=formats, tolerance=1e-3).plan
    chosen = {row.name: (row.format, row.ranks) for row in plan.rows if "experts" in row.name}
    assert {found for name, found in chosen.items() if ".0." in name} == {("tucker", (4, 4))}
    assert {found for name, found in chosen.items() if ".1." in name} == {("svd-each", (2,))}
