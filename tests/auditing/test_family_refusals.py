"""Variants of a family that are refused rather than counted wrongly."""

import pytest

from rankscope.auditing import read_configuration
from rankscope.errors import ConfigurationError

SIZES: dict[str, object] = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 10,
    "max_position_embeddings": 4,
}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"model_type": "bert", "embedding_size": 4}, "embedding_size is 4, .* its width 8"),
        (
            {"model_type": "bert", "position_embedding_type": "relative_key"},
            "wanted one of absolute, got 'relative_key'",
        ),
        ({"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention=true"),
        ({"model_type": "chatglm", "post_layer_norm": False}, "post_layer_norm=false"),
        ({"model_type": "vit", "image_size": 8, "patch_size": 9}, "9 x 9 .* image of 8 x 8"),
        (
            {"model_type": "t5", "d_kv": 4, "feed_forward_proj": "maxout"},
            "feed_forward_proj: wanted one of relu, .* got 'maxout'",
        ),
        ({"model_type": "albert", "num_hidden_groups": 3}, "3 groups .* share 2 blocks"),
        ({"model_type": "mixtral"}, "num_local_experts is missing"),
        ({"model_type": "deepseek_v2", "v_head_dim": 4}, "n_routed_experts, .* are missing"),
        ({"model_type": "t5"}, r"d_kv \(or head_dim\) is missing"),
        (
            {"model_type": "llama", "num_hidden_layers": 2**63},
            "num_hidden_layers: wanted an integer in",
        ),
    ],
)
def test_what_is_not_understood_is_refused_by_name(more: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^here[:,] .*{reason}"):
        read_configuration(SIZES | more, who="here")
