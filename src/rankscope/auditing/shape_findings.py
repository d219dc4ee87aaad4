"""What the configuration alone gives away: bottlenecks by theorem, depth by a fitted law."""

import math
from collections.abc import Iterator

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.findings import Finding, Severity
from rankscope.auditing.law import LEVINE, parameters_in_blocks
from rankscope.bounds.counting import counting_upper_bound
from rankscope.bounds.sizes import AttentionSizes

COUNTING_REFERENCE = "Rankscope, counting bound U, docs/proofs.md, section 7; Wies et al. (2021), "
COUNTING_REFERENCE += "arXiv:2105.03928"
CAVEAT = (
    "The theorem is about self-attention without softmax and feed-forward layers; "
    "it bounds what can be expressed, not what is learned."
)
# The law was fitted on dense decoders; for these it is an analogy.
ENCODERS = ("bert", "albert", "roberta", "distilbert", "vit", "t5")


def shape_findings(configuration: Configuration) -> tuple[Finding, ...]:
    """Findings about a configuration, the weightiest first."""
    found = [
        *_head_bottleneck(configuration),
        *_embedding_bottleneck(configuration),
        *_depth_by_law(configuration),
        *_grouped_keys(configuration),
        _regime(configuration),
    ]
    return tuple(sorted(found, key=lambda finding: -finding.severity))


def counting_log3(configuration: Configuration) -> float:
    """Logarithm to the base 3 of the counting bound, for tokens enough on both sides."""
    sizes = AttentionSizes(
        configuration.depth, configuration.width, embedding_rank=configuration.embedding_rank
    )
    return counting_upper_bound(sizes).log3


def _count(configuration: Configuration) -> str:
    return f"about 3^{counting_log3(configuration):,.0f}"


def _head_bottleneck(configuration: Configuration) -> Iterator[Finding]:
    width, attention_width = configuration.width, configuration.attention_width
    if attention_width <= width:
        return
    saving = configuration.attention_beyond_width / configuration.parameters.total
    yield Finding(
        id="head-bottleneck",
        severity=Severity.WARNING,
        title=f"Heads x head size is {attention_width:,}, {attention_width / width:.4g} times the "
        f"width of {width:,}; {100 * saving:.1f} % of all parameters lie above.",
        value=attention_width,
        threshold=width,
        saving=round(saving, 4),
        reason=f"The counting bound of the separation rank, {_count(configuration)} here, is "
        f"capped by the width: no number of heads raises it. {CAVEAT} Smaller, balanced "
        "models were reported to match the loss with 25 to 50 % fewer parameters (ALBERT, T5).",
        reference=COUNTING_REFERENCE,
        command=_plan(configuration),
    )


def _embedding_bottleneck(configuration: Configuration) -> Iterator[Finding]:
    rank, width = configuration.embedding_rank, configuration.width
    if rank >= width:
        return
    yield Finding(
        id="embedding-bottleneck",
        severity=Severity.WARNING,
        title=f"Embedded tokens have rank {rank:,} at most, below the width of {width:,}.",
        value=rank,
        threshold=width,
        saving=None,
        reason=f"The counting bound, {_count(configuration)}, is that of width "
        f"{rank:,}: widening beyond the embedding rank does not raise it, deepening or a larger "
        f"embedding does. {CAVEAT}",
        reference=COUNTING_REFERENCE,
        command=_plan(configuration, embedding_rank=rank),
    )


def _depth_by_law(configuration: Configuration) -> Iterator[Finding]:
    if configuration.num_experts > 1:
        return  # the law counts parameters that every token meets
    best = LEVINE.best_depth(float(parameters_in_blocks(configuration)))
    depth = configuration.depth
    if best.admits(depth) or best.real < 1:  # below one block the law has nothing to say
        return
    is_analogy = configuration.family in ENCODERS
    beyond = "" if LEVINE.is_fitted_at(best.real) else " Here it is extrapolated."
    analogy = " This model is not a decoder: take it as an analogy." if is_analogy else ""
    is_deep = depth > best.real
    yield Finding(
        id="too-deep" if is_deep else "too-shallow",
        severity=Severity.NOTE if is_analogy else Severity.ADVICE,
        title=f"Depth {depth} is {'above' if is_deep else 'below'} the fitted law's "
        f"{best.real:.1f} ± {best.standard_deviation:.1f} for this many parameters.",
        value=depth,
        threshold=round(best.real, 2),
        saving=None,
        reason=f"A law fitted on {LEVINE.data}.{beyond}{analogy} It is no theorem.",
        reference=LEVINE.reference,
        command=_plan(configuration),
    )


def _grouped_keys(configuration: Configuration) -> Iterator[Finding]:
    size = configuration.key_value_heads * configuration.head_size
    if configuration.key_value_heads >= configuration.heads or size >= configuration.width:
        return
    yield Finding(
        id="grouped-keys",
        severity=Severity.NOTE,
        title=f"{configuration.heads} heads share {configuration.key_value_heads} keys and values: "
        f"their maps have rank {size:,} at most, below the width of {configuration.width:,}.",
        value=size,
        threshold=configuration.width,
        saving=None,
        reason="Keys and values of a block pass through key_value_heads x head_size numbers per "
        "token; queries and outputs are not affected.",
        reference="shape of the maps",
        command="rankscope draw grouped-query -o grouped-query.svg",
    )


def _regime(configuration: Configuration) -> Finding:
    edge = math.log(configuration.width) / math.log(3)
    is_shallow = configuration.depth < edge
    growth = (
        "log sep grows like 3^depth: deepening pays double-exponentially"
        if is_shallow
        else "log sep grows like depth x width: depth and width pay alike"
    )
    return Finding(
        id="depth-regime",
        severity=Severity.NOTE,
        title=f"Depth {configuration.depth} is {'below' if is_shallow else 'above'} "
        f"log3(width) = {edge:.2f}.",
        value=configuration.depth,
        threshold=round(edge, 3),
        saving=None,
        reason=f"By the published lower bounds {growth}. {CAVEAT} Our count is "
        f"{_count(configuration)}.",
        reference="Levine et al. (2020), Thms 7.1 and 7.2 (2022), arXiv:2006.12467",
        command=f"rankscope bounds attention --depth {configuration.depth} "
        f"--width {configuration.width} --heads {configuration.heads} "
        f"--head-size {configuration.head_size}",
    )


def _plan(configuration: Configuration, *, embedding_rank: int | None = None) -> str:
    command = f"rankscope plan --params {parameters_in_blocks(configuration)}"
    if embedding_rank is not None:
        command += f" --embedding-rank {embedding_rank}"
    return command
