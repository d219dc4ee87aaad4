"""Totals against those that were published, for every family."""

import pytest

from rankscope.auditing import expected_tensors, read_configuration


def sizes(width: int, depth: int, heads: int, inner: int, vocabulary: int) -> dict[str, object]:
    return {
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": 512,
    }


def decoder(family: str, *shape: int, **more: object) -> dict[str, object]:
    return {"model_type": family, **sizes(*shape), **more}


def gpt2(width: int, depth: int, heads: int) -> dict[str, object]:
    return {
        "n_embd": width,
        "n_layer": depth,
        "n_head": heads,
        "n_positions": 1024,
        "vocab_size": 50257,
    }


def t5(*shape: int, **more: object) -> dict[str, object]:
    names = ("d_model", "num_layers", "num_heads", "d_kv", "d_ff")
    return {**dict(zip(names, shape, strict=True)), "vocab_size": 32128, **more}


DEEPSEEK = {
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
}
LATENT = {
    **DEEPSEEK,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
TYPES = {"type_vocab_size": 2}
# GPT-2, BERT, T5, LLaMA, Mistral and Mixtral also agree with the rounded totals of the data README;
# the others were written down from memory of their model cards, which were not opened.
PUBLISHED = {
    "gpt2": (gpt2(768, 12, 12), 124_439_808),
    "gpt2-large": (gpt2(1280, 36, 20), 774_030_080),
    "gpt2-xl": (gpt2(1600, 48, 25), 1_557_611_200),
    "bert-base": (sizes(768, 12, 12, 3072, 30522) | TYPES, 109_482_240),
    "bert-large": (sizes(1024, 24, 16, 4096, 30522) | TYPES, 335_141_888),
    "roberta-base": (
        decoder("roberta", 768, 12, 12, 3072, 50265)
        | {"type_vocab_size": 1, "max_position_embeddings": 514},
        124_645_632,
    ),
    "distilbert": (decoder("distilbert", 768, 6, 12, 3072, 30522), 66_362_880),
    "albert-base": (
        decoder("albert", 768, 12, 12, 3072, 30000, embedding_size=128),
        11_683_584,
    ),
    "t5-small": (t5(512, 6, 8, 64, 2048), 60_506_624),
    "t5-base": (t5(768, 12, 12, 64, 3072), 222_903_552),
    "t5-large": (t5(1024, 24, 16, 64, 4096), 737_668_096),
    "t5-3b": (t5(1024, 24, 32, 128, 16384), 2_851_598_336),
    "t5-11b": (t5(1024, 24, 128, 128, 65536), 11_307_321_344),
    "t5-v1.1-base": (
        t5(768, 12, 12, 64, 2048, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        247_577_856,
    ),
    "llama2-7b": (decoder("llama", 4096, 32, 32, 11008, 32000), 6_738_415_616),
    "llama3.1-8b": (
        decoder("llama", 4096, 32, 32, 14336, 128256, num_key_value_heads=8),
        8_030_261_248,
    ),
    "smollm2-135m": (
        decoder("llama", 576, 30, 9, 1536, 49152, num_key_value_heads=3, tie_word_embeddings=True),
        134_515_008,
    ),
    "mistral-7b": (
        decoder("mistral", 4096, 32, 32, 14336, 32000, num_key_value_heads=8),
        7_241_732_096,
    ),
    "mixtral-8x7b": (
        decoder("mixtral", 4096, 32, 32, 14336, 32000, num_key_value_heads=8)
        | {"num_local_experts": 8},
        46_702_792_704,
    ),
    "qwen-1.8b": (decoder("qwen", 2048, 24, 16, 11008, 151936), 1_836_828_672),
    "qwen2-0.5b": (
        decoder("qwen2", 896, 24, 14, 4864, 151936, num_key_value_heads=2)
        | {"tie_word_embeddings": True},
        494_032_768,
    ),
    "qwen3-0.6b": (
        decoder("qwen3", 1024, 28, 16, 3072, 151936, num_key_value_heads=8)
        | {"tie_word_embeddings": True},
        596_049_920,
    ),
    "qwen1.5-moe": (
        decoder("qwen2_moe", 2048, 24, 16, 5632, 151936, num_experts=60)
        | {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632},
        14_315_784_192,
    ),
    "qwen3-30b-a3b": (
        decoder("qwen3_moe", 2048, 48, 32, 6144, 151936, num_key_value_heads=4, head_dim=128)
        | {"num_experts": 128, "moe_intermediate_size": 768},
        30_532_122_624,
    ),
    "gemma-2b": (
        decoder("gemma", 2048, 18, 8, 16384, 256000, num_key_value_heads=1),
        2_506_172_416,
    ),
    "gemma2-2b": (
        decoder("gemma2", 2304, 26, 8, 9216, 256000, num_key_value_heads=4),
        2_614_341_888,
    ),
    "gemma3-1b": (
        decoder("gemma3_text", 1152, 26, 4, 6912, 262144, num_key_value_heads=1),
        999_885_952,
    ),
    "phi-1.5": (decoder("phi", 2048, 24, 32, 8192, 51200), 1_418_270_720),
    "phi-1.5-first-layout": (
        gpt2(2048, 24, 32) | {"model_type": "phi-msft", "vocab_size": 51200},
        1_418_270_720,
    ),
    "phi-3.5-mini": (decoder("phi3", 3072, 32, 32, 8192, 32064), 3_821_079_552),
    "olmo2-7b": (decoder("olmo2", 4096, 32, 32, 11008, 100352), 7_298_617_344),
    "internlm2-7b": (
        decoder("internlm2", 4096, 32, 32, 14336, 92544, num_key_value_heads=8, bias=False),
        7_737_708_544,
    ),
    "baichuan2-7b": (decoder("baichuan", 4096, 32, 32, 11008, 125696), 7_505_973_248),
    "chatglm3-6b": (
        {
            "model_type": "chatglm",
            "hidden_size": 4096,
            "num_layers": 28,
            "num_attention_heads": 32,
            "ffn_hidden_size": 13696,
            "padded_vocab_size": 65024,
            "kv_channels": 128,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "add_qkv_bias": True,
        },
        6_243_584_000,
    ),
    "deepseek-moe-16b": (
        decoder("deepseek", 2048, 28, 16, 10944, 102400, **DEEPSEEK),
        16_375_728_128,
    ),
    "deepseek-v2-lite": (
        decoder("deepseek_v2", 2048, 27, 16, 10944, 102400, **LATENT),
        15_706_484_224,
    ),
    "deepseek-v2": (
        decoder("deepseek_v2", 5120, 60, 128, 12288, 102400, **LATENT)
        | {"n_routed_experts": 160, "moe_intermediate_size": 1536, "q_lora_rank": 1536},
        235_741_434_880,
    ),
    "minicpm-2b": (decoder("minicpm", 2304, 40, 36, 5760, 122753), 2_724_880_896),
    "aya-23-8b": (
        decoder("cohere", 4096, 32, 32, 14336, 256000, num_key_value_heads=8),
        8_028_033_024,
    ),
    "stablelm-3b": (decoder("stablelm", 2560, 32, 32, 6912, 50304), 2_795_443_200),
    "stablelm2-1.6b": (
        decoder("stablelm", 2048, 24, 32, 5632, 100352, use_qkv_bias=True),
        1_644_515_328,
    ),
    "gpt-j": (gpt2(4096, 28, 16) | {"model_type": "gptj", "vocab_size": 50400}, 6_050_882_784),
    "redpajama-3b": (decoder("gpt_neox", 2560, 32, 32, 10240, 50432), 2_775_864_320),
    "santacoder": (
        gpt2(2048, 24, 16)
        | {"model_type": "gpt_bigcode", "vocab_size": 49280, "n_positions": 2048},
        1_124_886_528,
    ),
    "opt-125m": (
        decoder("opt", 768, 12, 12, 3072, 50272, max_position_embeddings=2048),
        125_239_296,
    ),
    "opt-350m": (
        decoder("opt", 1024, 24, 16, 4096, 50272, max_position_embeddings=2048)
        | {"word_embed_proj_dim": 512, "do_layer_norm_before": False},
        331_196_416,
    ),
    "opt-1.3b": (
        decoder("opt", 2048, 24, 32, 8192, 50272, max_position_embeddings=2048),
        1_315_758_080,
    ),
    "vit-base-16": (
        sizes(768, 12, 12, 3072, 1)
        | {"image_size": 224, "patch_size": 16, "num_labels": 1000}
        | {"architectures": ["ViTForImageClassification"]},
        86_567_656,
    ),
    "vit-base-16-pooler": (
        sizes(768, 12, 12, 3072, 1)
        | {"image_size": 224, "patch_size": 16, "architectures": ["ViTModel"]},
        86_389_248,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_are_those_that_were_published(name: str) -> None:
    document, total = PUBLISHED[name]
    assert read_configuration(document, who=name).parameters.total == total


@pytest.mark.parametrize("name", sorted(set(PUBLISHED) - {"deepseek-v2", "qwen3-30b-a3b"}))
def test_every_tensor_has_a_name_of_its_own_and_counts_once(name: str) -> None:
    document, total = PUBLISHED[name]
    tensors = expected_tensors(document)
    assert len({tensor.name for tensor in tensors}) == len(tensors)
    assert sum(tensor.size for tensor in tensors if not tensor.is_tied) == total
