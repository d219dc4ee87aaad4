from pathlib import Path

import pytest

from rankscope.auditing import FAMILIES, find_family
from rankscope.errors import ConfigurationError

BERT = ("hidden_size", "num_attention_heads", "type_vocab_size", "num_hidden_layers")


def found(document: dict[str, object], family: str | None = None) -> str:
    return find_family(document, family=family, who="config.json").name


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_found_by_each_of_its_names(name: str) -> None:
    for model_type in (name, *FAMILIES[name].model_types):
        assert found({"model_type": model_type}) == name
        assert found({}, family=model_type) == name


@pytest.mark.parametrize("name", [name for name in FAMILIES if FAMILIES[name].telling_keys])
def test_telling_keys_give_a_family_away(name: str) -> None:
    assert found(dict.fromkeys(FAMILIES[name].telling_keys, 1)) == name


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("LlamaForCausalLM", "llama"),
        ("GPT2LMHeadModel", "gpt2"),
        ("GPTNeoXForCausalLM", "gpt_neox"),
        ("Qwen2MoeForCausalLM", "qwen2_moe"),
        ("XLMRobertaModel", "roberta"),
        ("T5ForConditionalGeneration", "t5"),
        ("T5EncoderModel", "t5"),
        ("ViTForImageClassification", "vit"),
    ],
)
def test_without_a_model_type_the_architecture_speaks(architecture: str, name: str) -> None:
    assert found({"architectures": [architecture]}) == name


def test_a_distilbert_with_the_keys_of_bert_needs_to_be_named() -> None:
    document: dict[str, object] = dict.fromkeys(BERT, 1)
    assert found(document) == "bert"
    assert found(document, family="distilbert") == "distilbert"


def test_a_name_helps_where_the_model_type_is_unknown() -> None:
    assert found({"model_type": "my_llama"}, family="llama") == "llama"


def test_a_name_may_not_contradict_the_model_type() -> None:
    with pytest.raises(ConfigurationError, match="of family 'bert', but 'llama' was asked for"):
        found({"model_type": "bert"}, family="llama")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="family 'gtp2' is not known; known are albert, "):
        found({"model_type": "gpt2"}, family="gtp2")


def test_an_unknown_model_type_is_refused_with_what_it_lacks() -> None:
    reason = r"'rwkv5' is not known. It lacks num_attention_heads, intermediate_size, vocab_size"
    with pytest.raises(ConfigurationError, match=reason):
        found({"model_type": "rwkv5", "hidden_size": 8, "num_hidden_layers": 2})


def test_an_unknown_model_type_is_not_guessed_from_its_keys() -> None:
    with pytest.raises(ConfigurationError, match="model_type 'deberta' is not known"):
        found({"model_type": "deberta"} | dict.fromkeys(BERT, 1))


def test_keys_that_fit_several_families_are_refused() -> None:
    llama_or_qwen: dict[str, object] = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "vocab_size": 10,
        "rms_norm_eps": 1e-6,
    }
    with pytest.raises(ConfigurationError, match=r"keys fit no family or several\. If its"):
        found(llama_or_qwen)


@pytest.mark.parametrize("strange", [3, ["llama"], {}])
def test_a_model_type_that_is_no_word_is_refused(strange: object) -> None:
    with pytest.raises(ConfigurationError, match="is not known"):
        found({"model_type": strange})


@pytest.mark.parametrize("key", ["text_config", "vision_config", "img_processor", "init_args"])
def test_models_inside_models_are_refused_by_name(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"type 'llava' with the key {key} is not read"):
        found({"model_type": "llava", key: {}})


def test_the_page_names_every_family() -> None:
    page = Path(__file__).parents[2] / "docs" / "audit.md"
    listed = page.read_text(encoding="utf-8").partition("Families: ")[2].partition(".")[0]
    assert [name.strip().strip("`") for name in listed.split(",")] == list(FAMILIES)
