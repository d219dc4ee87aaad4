"""Sizes, counts and ranks of whole documents, and real ones where they are at hand."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import read_configuration
from rankscope.errors import ConfigurationError, ModelFileError
from rankscope.strict_json import parse_document

SHARED = Path(os.environ.get("RANKSCOPE_SHARED", Path(__file__).parents[3] / "shared" / "data"))
CONFIGS = SHARED / "configs"
REFUSED = {"rwkv5_3b", "llava", "phi-3_5-vision", "facebook_opt-1.3b", "ministral3_3b_2512"}


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


def t5(*shape: int, **more: object) -> dict[str, object]:
    names = ("d_model", "num_layers", "num_heads", "d_kv", "d_ff")
    return {**dict(zip(names, shape, strict=True)), "vocab_size": 32128, **more}


LATENT: dict[str, object] = {
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


@pytest.mark.parametrize(
    ("heads", "inner", "leaves"), [(128, 65536, 6_777_000_000), (32, 16384, 1_946_000_000)]
)
def test_t5_can_be_capped_as_the_specification_says(heads: int, inner: int, leaves: int) -> None:
    """Section 3: T5-11B falls to 6.777e9, T5-3B to 1.946e9, given to four digits."""
    read = read_configuration(t5(1024, 24, heads, 128, inner), who="t5")
    left = read.parameters.total - read.attention_beyond_width
    assert abs(left - leaves) < 500_000
    # 12 matrices of each pair of blocks, without those of a width of 1024.
    assert read.attention_beyond_width == 24 * 12 * 1024 * (heads * 128 - 1024)


def test_t5_11b_has_two_fifths_of_its_parameters_above_the_width() -> None:
    read = read_configuration(t5(1024, 24, 128, 128, 65536), who="t5")
    assert round(read.attention_beyond_width / read.parameters.total, 4) == 0.4006
    assert (read.attention_width, read.width) == (16384, 1024)
    assert (read.depth, read.encoder_depth, read.decoder_depth) == (24, 24, 24)


def test_an_encoder_and_a_decoder_may_differ_in_depth() -> None:
    read = read_configuration(t5(8, 2, 2, 4, 16, num_decoder_layers=5), who="t5")
    assert (read.depth, read.encoder_depth, read.decoder_depth) == (5, 2, 5)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 9), st.integers(1, 20))
def test_only_what_lies_above_the_width_is_beyond_it(
    groups: int, share: int, head_size: int, width: int
) -> None:
    """Queries and outputs have heads x size rows, keys and values the groups' share of them."""
    heads = groups * share
    more = {"num_key_value_heads": groups, "head_dim": head_size}
    read = read_configuration(decoder("llama", width, 3, heads, 5, 7, **more), who="llama")
    matrices = 3 * width * 2 * head_size * (heads + groups)
    assert read.parameters.attention == matrices
    excess = max(0, heads * head_size - width)
    assert read.attention_beyond_width == matrices * excess // (heads * head_size)


@pytest.mark.parametrize(
    ("family", "key"), [("albert", "embedding_size"), ("opt", "word_embed_proj_dim")]
)
def test_embeddings_have_the_rank_of_their_narrowest_place(family: str, key: str) -> None:
    document = decoder(family, 768, 2, 12, 3072, 30000)
    for size, rank in ((128, 128), (1024, 768)):
        assert read_configuration(document | {key: size}, who=family).embedding_rank == rank


def test_a_vit_of_width_1024_sees_patches_of_768_numbers() -> None:
    large = sizes(1024, 24, 16, 4096, 1) | {"image_size": 224, "patch_size": 16}
    read = read_configuration(large, who="ViT-L/16")
    assert (read.embedding_rank, read.width, read.vocabulary) == (768, 1024, None)


def test_a_vocabulary_smaller_than_the_width_bounds_the_rank() -> None:
    read = read_configuration(decoder("llama", 512, 1, 8, 64, 65), who="characters")
    assert read.embedding_rank == 65


def test_latent_heads_have_the_size_of_what_they_write() -> None:
    read = read_configuration(
        decoder("deepseek_v2", 2048, 3, 16, 10944, 102400, **LATENT), who="v2"
    )
    assert (read.heads, read.head_size, read.key_value_heads) == (16, 128, 16)
    assert (read.attention_width, read.attention_beyond_width) == (2048, 0)
    assert (read.num_experts, read.feed_forward) == (64, 1408)


@pytest.mark.parametrize(("blocks", "experts"), [(2**31 - 1, 1), (3000, 3000), (65536, 4)])
def test_absurdly_many_tensors_are_refused(blocks: int, experts: int) -> None:
    document = decoder("mixtral", 8, blocks, 2, 8, 8, num_local_experts=experts)
    numbers = rf"{blocks:,} blocks with 2 heads and {experts:,} experts .* at most 200,000"
    with pytest.raises(ConfigurationError, match=numbers):
        read_configuration(document, who="mixtral")


def test_shared_blocks_count_in_the_depth_but_once_in_the_parameters() -> None:
    once = decoder("albert", 8, 6, 2, 16, 10)
    thrice = once | {"num_hidden_groups": 3, "inner_group_num": 2}
    small, large = (read_configuration(one, who="albert") for one in (once, thrice))
    assert (small.depth, large.depth) == (6, 12)
    assert large.parameters.attention == 6 * small.parameters.attention
    assert large.parameters.embedding == small.parameters.embedding


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"n_embd": 1, "n_embd": 2}', "'n_embd' stands twice"),
        (b"[1, 2]", "holds a list of 2; wanted a JSON object"),
    ],
)
def test_documents_that_are_no_plain_object_are_refused(text: bytes, reason: str) -> None:
    with pytest.raises(ModelFileError, match=reason):
        parse_document(text, who="config.json")


def test_reading_a_configuration_loads_no_heavy_package() -> None:
    code = (
        "import sys; from rankscope.auditing.families.catalogue import read_configuration;"
        f"read_configuration({decoder('llama', 8, 2, 2, 16, 10)!r}, who='llama');"
        "print({'torch', 'numpy', 'numba', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def real_documents() -> Mapping[str, dict[str, object]]:
    files = sorted(CONFIGS.glob("[!_]*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


@pytest.mark.skipif(not CONFIGS.is_dir(), reason=f"no configurations in {CONFIGS}")
def test_real_configurations_are_read_or_refused_by_name() -> None:
    refused = set()
    for name, document in real_documents().items():
        family = "distilbert" if name.startswith("distilbert") else None
        try:
            assert read_configuration(document, family=family, who=name).parameters.total > 10**6
        except ConfigurationError as error:
            refused.add(str(error).split(":")[0])
    assert refused == REFUSED


@pytest.mark.skipif(not CONFIGS.is_dir(), reason=f"no configurations in {CONFIGS}")
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("gpt2", 124.4),
        ("gpt2-large", 774.0),
        ("bert-base-uncased", 109.5),
        ("t5-base", 222.9),
        ("t5-11b", 11307),
        ("t5.1.0.11B-gin", 11307),
        ("llama2_7b", 6738),
        ("llama3_1_8b", 8030),
        ("mistral_7b", 7242),
        ("Mixtral-8x7B-v0.1", 46703),
    ],
)
def test_real_configurations_have_the_published_totals(name: str, millions: float) -> None:
    total = read_configuration(real_documents()[name], who=name).parameters.total
    assert total / 1e6 == pytest.approx(millions, rel=1e-3)
