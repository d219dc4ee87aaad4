"""Parts and layers, told by the names that libraries give."""

import pytest

from rankscope.auditing import layer_of, part_of

NAMES = {
    "embeddings.word_embeddings.weight": ("embedding", None),
    "wte.weight": ("embedding", None),
    "shared.weight": ("embedding", None),
    "tok_embeddings.weight": ("embedding", None),
    "vit.embeddings.patch_embeddings.projection.weight": ("embedding", None),
    "encoder.embedding_hidden_mapping_in.weight": ("embedding", None),
    "encoder.layer.3.attention.self.query.weight": ("attention", 3),
    "encoder.layer.3.attention.output.dense.weight": ("attention", 3),
    "h.11.attn.c_proj.weight": ("attention", 11),
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": ("attention", 0),
    "model.layers.31.self_attn.k_proj.weight": ("attention", 31),
    "encoder.layer.3.intermediate.dense.weight": ("feed_forward", 3),
    "encoder.layer.3.output.dense.weight": ("feed_forward", 3),
    "decoder.block.5.layer.2.DenseReluDense.wo.weight": ("feed_forward", 5),
    "model.layers.2.block_sparse_moe.experts.7.w1.weight": ("feed_forward", 2),
    "transformer.layers.4.linear1.weight": ("feed_forward", 4),
    "encoder.albert_layer_groups.0.albert_layers.0.ffn_output.weight": ("feed_forward", 0),
    "encoder.layer.3.attention.output.LayerNorm.weight": ("normalization", 3),
    "h.0.ln_1.weight": ("normalization", 0),
    "model.layers.1.input_layernorm.weight": ("normalization", 1),
    "model.norm.weight": ("normalization", None),
    "layer1.0.bn2.running_var": ("normalization", None),
    "lm_head.weight": ("head", None),
    "embed_out.weight": ("head", None),
    "output.weight": ("head", None),
    "cls.predictions.decoder.weight": ("head", None),
    "linear.weight": ("head", None),
    "pooler.dense.weight": ("other", None),
    "layer1.0.conv1.weight": ("other", None),
    "lstm.weight_hh_l1_reverse": ("other", 1),
    "": ("other", None),
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items(), ids=list(NAMES))
def test_names_tell_part_and_layer(name: str, expected: tuple[str, int | None]) -> None:
    assert (part_of(name), layer_of(name)) == expected
