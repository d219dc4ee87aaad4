import pytest

from rankscope.auditing import contradictions, expected_tensors

DOCUMENT: dict[str, object] = {
    "model_type": "bert",
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 10,
    "max_position_embeddings": 4,
}
SHAPES = {tensor.name: tensor.shape for tensor in expected_tensors(DOCUMENT)}


def found(actual: dict[str, tuple[int, ...]], **changes: object) -> tuple[str, ...]:
    return contradictions(expected_tensors(DOCUMENT | changes), actual)


@pytest.mark.parametrize("prefix", ["", "bert.", "model.encoder."])
def test_the_same_model_does_not_contradict_itself_under_a_prefix(prefix: str) -> None:
    assert found({prefix + name: shape for name, shape in SHAPES.items()}) == ()


def test_a_file_may_leave_out_the_first_words_of_names() -> None:
    document = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 4, "vocab_size": 10}
    expected = expected_tensors(document)
    actual = {
        one.name.removeprefix("transformer."): one.shape for one in expected if not one.is_tied
    }
    # Causal masks are buffers of the same ending as a bias, and no contradiction.
    masks = {f"h.{block}.attn.bias": (1, 1, 4, 4) for block in range(2)}
    assert contradictions(expected, actual | masks) == ()


def test_old_names_of_scales_and_shifts_are_known() -> None:
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): shape
        for name, shape in SHAPES.items()
    }
    assert found(old) == ()


def test_poolers_may_be_left_out_and_heads_for_tasks_added() -> None:
    actual = {name: shape for name, shape in SHAPES.items() if "pooler" not in name}
    assert found(actual | {"cls.predictions.bias": (10,)}) == ()


@pytest.mark.parametrize("blocks", [2, 4])
def test_another_number_of_blocks_is_told_with_both_numbers(blocks: int) -> None:
    assert found(SHAPES, num_hidden_layers=blocks) == (
        f"encoder.layer has {blocks} blocks in the configuration, but 3 in the weights.",
    )


def test_another_size_is_told_once_for_all_blocks() -> None:
    sentences = found(SHAPES, intermediate_size=17)
    assert len(sentences) == 3
    assert sentences[0] == (
        "encoder.layer.0.intermediate.dense.weight and 2 more have shape (17, 8) in the "
        "configuration, but (16, 8) in the weights."
    )


def test_a_single_tensor_of_another_shape_is_named() -> None:
    assert found(SHAPES, vocab_size=11) == (
        (
            "embeddings.word_embeddings.weight has shape (11, 8) in the configuration, "
            "but (10, 8) in the weights."
        ),
    )


def test_missing_tensors_are_counted() -> None:
    actual = {name: shape for name, shape in SHAPES.items() if "LayerNorm" not in name}
    needed = len(SHAPES) - 2
    assert found(actual) == (
        (
            f"embeddings.LayerNorm.weight and 13 more of {needed} tensors in the configuration "
            "are not in the weights."
        ),
    )
    kept = dict(SHAPES)
    del kept["embeddings.word_embeddings.weight"]
    assert found(kept) == (
        (
            f"embeddings.word_embeddings.weight of {needed} tensors in the configuration is not in "
            "the weights."
        ),
    )


def test_biases_that_the_configuration_denies_are_named() -> None:
    document = DOCUMENT | {"model_type": "llama"}
    actual = {tensor.name: tensor.shape for tensor in expected_tensors(document)}
    biases = {f"model.layers.{block}.self_attn.q_proj.bias": (8,) for block in range(3)}
    assert contradictions(expected_tensors(document), actual | biases) == (
        (
            "model.layers.0.self_attn.q_proj.bias and 2 more in the weights, but the configuration "
            "has 0 such biases."
        ),
    )


def test_weights_of_another_kind_share_no_name() -> None:
    (sentence,) = found({"conv1.weight": (8, 3, 3, 3)})
    assert sentence.startswith(f"None of the {len(SHAPES)} tensors of the configuration")
    assert sentence.endswith("is among the 1 of the weights.")
