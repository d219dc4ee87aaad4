"""Findings from a configuration: numbers, thresholds, and wording no stronger than the theory."""

import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import Configuration, Finding, Parameters, Severity, shape_findings
from rankscope.cli.main import COMMANDS


def decoder(depth: int = 24, width: int = 1024, heads: int = 16) -> Configuration:
    square = width * width
    return Configuration(
        family="gpt2",
        depth=depth,
        width=width,
        heads=heads,
        head_size=64,
        key_value_heads=heads,
        feed_forward=4 * width,
        vocabulary=50257,
        embedding_rank=width,
        parameters=Parameters(
            embedding=50257 * width,
            attention=4 * depth * width * heads * 64,
            feed_forward=8 * depth * square,
        ),
        attention_beyond_width=max(0, 4 * depth * width * (heads * 64 - width)),
    )


def by_id(configuration: Configuration) -> dict[str, Finding]:
    return {finding.id: finding for finding in shape_findings(configuration)}


def test_heads_beyond_the_width_are_a_warning_with_their_saving() -> None:
    wide = decoder(heads=32)
    finding = by_id(wide)["head-bottleneck"]
    assert (finding.value, finding.threshold) == (2048, 1024)
    assert finding.saving == round(wide.attention_beyond_width / wide.parameters.total, 4)
    assert finding.severity == Severity.WARNING
    assert "without softmax" in finding.reason
    assert "head-bottleneck" not in by_id(decoder())


def test_a_small_embedding_is_a_warning() -> None:
    finding = by_id(replace(decoder(), embedding_rank=128))["embedding-bottleneck"]
    assert (finding.value, finding.threshold) == (128, 1024)
    assert "--embedding-rank 128" in finding.command


@pytest.mark.parametrize(("depth", "name"), [(4, "too-shallow"), (200, "too-deep")])
def test_the_law_advises_and_never_warns(depth: int, name: str) -> None:
    finding = by_id(decoder(depth=depth))[name]
    assert finding.value == depth
    assert finding.severity == Severity.ADVICE
    assert "fitted on" in finding.reason
    assert by_id(replace(decoder(depth=depth), family="bert"))[name].severity == Severity.NOTE


def test_the_law_says_nothing_about_experts_or_a_depth_it_agrees_with() -> None:
    assert not {"too-deep", "too-shallow"} & set(by_id(replace(decoder(4), num_experts=8)))
    assert not {"too-deep", "too-shallow"} & set(by_id(decoder(depth=32, width=886, heads=14)))


def test_grouped_keys_and_the_regime_are_notes() -> None:
    found = by_id(replace(decoder(), key_value_heads=4))
    assert (found["grouped-keys"].value, found["grouped-keys"].threshold) == (256, 1024)
    assert "see 3.12 % at most" in found["grouped-keys"].reason  # 4 · 64² of 1024 · 1025 / 2
    assert "section 24" in found["grouped-keys"].reference
    assert "grouped-keys" not in by_id(decoder())
    latent = by_id(replace(decoder(), latent=128))["latent-keys"]
    assert (latent.value, latent.threshold) == (128, 1024)
    assert "see 1.57 % at most" in latent.reason  # 128 · 129 / 2 of 1024 · 1025 / 2
    assert "above" in found["depth-regime"].title
    assert "below" in by_id(decoder(depth=3))["depth-regime"].title


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 100), st.integers(1, 64), st.integers(1, 64), st.integers(1, 4096))
def test_every_finding_has_numbers_and_a_command_that_exists(
    depth: int, width: int, heads: int, rank: int
) -> None:
    configuration = replace(decoder(depth, 64 * width, heads), embedding_rank=min(rank, 64 * width))
    found = shape_findings(configuration)
    assert [finding.severity for finding in found] == sorted(
        (finding.severity for finding in found), reverse=True
    )
    for finding in found:
        document = finding.to_dict()
        assert document["severity"] in ("note", "advice", "warning")
        assert isinstance(document["value"], int | float)
        program, command, *_ = shlex.split(finding.command)
        assert program == "rankscope"
        assert command in {*COMMANDS, "plan", "audit"}
