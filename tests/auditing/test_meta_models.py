"""Configurations that transformers builds without numbers, and heads that are counted."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope import audit
from rankscope.auditing import read_configuration
from rankscope.errors import ConfigurationError, MissingExtraError, UnknownFamilyError
from rankscope.extras import transformers as load_transformers

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 80,
    "max_position_embeddings": 32,
}


def written(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return path


def built_total(model: str, config: Any) -> int:
    with torch.device("meta"):
        made = getattr(load_transformers(), model)(config)
    return sum(parameter.numel() for parameter in made.parameters())


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("Olmo2ForCausalLM", "Olmo2Config"),
        ("FalconForCausalLM", "FalconConfig"),
        ("Starcoder2ForSequenceClassification", "Starcoder2Config"),
        ("MambaForCausalLM", "MambaConfig"),
    ],
)
def test_what_no_family_reads_is_built_and_counted(model: str, config: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2} if model.startswith("Mamba") else SMALL
    made = getattr(load_transformers(), config)(**sizes)
    document = made.to_dict() | {"architectures": [model]}
    audited = audit(written(tmp_path, document))
    assert audited.parameters.total == built_total(model, made)
    if model.startswith("Mamba"):
        assert audited.configuration is None
    else:
        assert audited.configuration is not None
        assert (audited.configuration.depth, audited.configuration.width) == (2, 32)


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
@pytest.mark.parametrize(
    "head",
    [
        *("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"),
        *("ForQuestionAnswering", "ForCausalLM", "ForPreTraining"),
    ],
)
def test_heads_are_counted_where_architectures_says_so(kind: str, head: str) -> None:
    name = f"{kind}{head}" if (kind, head) != ("Bert", "ForCausalLM") else "BertLMHeadModel"
    if (kind, head) == ("Roberta", "ForPreTraining"):
        pytest.skip("there is no such class")
    labels = {"num_labels": 5}
    config = getattr(load_transformers(), f"{kind}Config")(**SMALL, **labels)
    document = config.to_dict() | {"architectures": [name]}
    counted = read_configuration(document, who="config").parameters
    assert counted.total == built_total(name, config)
    assert (counted.head > 0) == (head != "Model")


def test_null_is_not_a_value() -> None:
    sizes: dict[str, object] = {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
    sizes |= {"n_positions": 1024}
    plain = read_configuration(sizes, who="gpt2")
    nothing = {"img_processor": None, "text_config": None, "architectures": None}
    assert read_configuration(sizes | nothing, who="gpt2") == plain


def test_without_the_extra_the_refusal_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise MissingExtraError(what="Models", package="transformers", extra="hf")

    monkeypatch.setattr("rankscope.auditing.meta_models.transformers", missing)
    path = written(tmp_path, SMALL | {"model_type": "starcoder2"})
    with pytest.raises(UnknownFamilyError, match=r"pip install 'rankscope\[hf\]'"):
        audit(path)


def test_what_transformers_cannot_build_is_refused_with_its_reason(tmp_path: Path) -> None:
    unheard = written(tmp_path, SMALL | {"model_type": "unheard"})
    with pytest.raises(ConfigurationError, match="has no model_type 'unheard' either"):
        audit(unheard)
    deep = written(tmp_path, SMALL | {"model_type": "starcoder2", "num_hidden_layers": 20_000})
    with pytest.raises(ConfigurationError, match=r"20,000 blocks, and at most 10,000 are built"):
        audit(deep)
    odd = written(tmp_path, SMALL | {"model_type": "starcoder2", "hidden_size": "wide"})
    with pytest.raises(ConfigurationError, match="cannot build a starcoder2 of this configuration"):
        audit(odd)
