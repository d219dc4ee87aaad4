"""Findings: short statements with a number, a threshold, a reason and a command."""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum

from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.auditing.depth_width_law import LEVINE, parameters_in_blocks
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part
from rankscope.auditing.tensors import MatrixRow, TensorRow
from rankscope.display import counted
from rankscope.errors import printable
from rankscope.files import is_folder
from rankscope.networks.catalogue import BUILT_IN
from rankscope.rank.bounds.counting import counting_upper_bound
from rankscope.rank.bounds.sizes import AttentionSizes


class Severity(IntEnum):
    """How serious a finding is; what rests on a fitted law never outranks a theorem."""

    NOTE = 0
    ADVICE = 1
    WARNING = 2


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing.

    Args:
        id: stable name, such as "head-bottleneck".
        severity: how serious it is.
        title: one plain sentence with the number in it.
        value: what was found.
        threshold: what it is compared with.
        saving: share of all parameters that acting on it would save, or None.
        reason: why, worded no stronger than it is.
        reference: theorem, law (with the sizes and data it was fitted on) or method.
        command: the exact command that acts on it.
    """

    id: str
    severity: Severity
    title: str
    value: int | float
    threshold: int | float
    saving: float | None
    reason: str
    reference: str
    command: str

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {**asdict(self), "severity": self.severity.name.lower()}


# --- Where a configuration and the weights beside it do not describe the same model ---------------


# A file may leave these out: it is then the same model without its last map.
_OPTIONAL = (Part.HEAD, Part.OTHER)
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
TensorShape = tuple[int, ...]


def contradictions(
    expected: Iterable[ExpectedTensor], actual: Mapping[str, TensorShape]
) -> tuple[str, ...]:
    """Sentences that name both numbers: of the configuration and of the weights.

    Names may differ in what stands before them ("model.", "bert."), and the old endings gamma and
    beta mean weight and bias. Tied tensors, output matrices and poolers may be left out of a
    file, and a file may hold more than is expected: buffers, heads for tasks.

    Example:
        >>> wanted = ExpectedTensor("model.norm.weight", (64,), Part.NORMALIZATION)
        >>> contradictions([wanted], {"norm.weight": (32,)})
        ('norm.weight has shape (64,) in the configuration, but (32,) in the weights.',)
    """
    expected = tuple(expected)
    matches = _matches(expected, actual)
    if expected and not matches:
        nothing = (
            f"None of the {len(expected)} tensors of the configuration, such as "
            f"{expected[0].name}, is among the {len(actual)} of the weights."
        )
        return (nothing,)
    lists = _different_depths(matches, expected, actual)
    sentences = [
        f"{name} has {ours} blocks in the configuration, but {theirs} in the weights."
        for name, (ours, theirs) in lists.items()
    ]
    sentences += _different_shapes(matches, expected, actual)
    sentences += _missing(matches, [one for one in expected if _list_of(one.name)[0] not in lists])
    sentences += _unexpected_biases(matches, actual)
    return tuple(sentences)


# Tables and masks that some versions of a library saved beside the weights; nobody learns them.
_BUFFERS = re.compile(
    r"(?:.*\.)?(?:(?:attn|attention)\.(?:masked_)?bias|(?:\w+\.)?inv_freq|position_ids"
    r"|token_type_ids|relative_position_index|attn_mask|\w*num_batches_tracked)"
)


def unnamed_tensors(
    expected: Iterable[ExpectedTensor], actual: Mapping[str, TensorShape]
) -> tuple[str, ...]:
    """Tensors of the weights that the configuration does not speak of; known buffers are none.

    Example:
        >>> wanted = ExpectedTensor("norm.weight", (64,), Part.NORMALIZATION)
        >>> unnamed_tensors([wanted], {"model.norm.weight": (64,), "adapter.weight": (9, 9)})
        ('adapter.weight',)
    """
    named = set(_matches(tuple(expected), actual).values())
    return tuple(name for name in actual if name not in named and not _BUFFERS.fullmatch(name))


def unnamed_findings(
    rows: Sequence[TensorRow], counted: Parameters, source: str
) -> tuple[Finding, ...]:
    """One finding if the weights hold more than the configuration names.

    Args:
        rows: the tensors that the configuration does not speak of, without copies and buffers.
        counted: their parameters.
        source: named in the command.
    """
    if not counted.total:
        return ()
    largest = max(rows, key=lambda row: math.prod(row.shape))
    finding = Finding(
        id="unnamed-tensors",
        severity=Severity.NOTE,
        title=f"The weights hold {counted.total:,} parameters that the configuration does not "
        f"name, in {len(rows):,} tensors, the largest {printable(largest.name)}; they are counted.",
        value=counted.total,
        threshold=0,
        saving=None,
        reason="Heads for tasks, adapters and leftovers of training are saved beside a model; "
        "whoever loads the configuration alone does not get them.",
        reference="names and shapes of the family's own checkpoints",
        command=_again(source),
    )
    return (finding,)


def _matches(
    expected: tuple[ExpectedTensor, ...], actual: Mapping[str, TensorShape]
) -> dict[str, str]:
    """The name in the weights of every expected tensor that is there."""
    by_ending: dict[str, str] = {}
    plain = {_plain(name): name for name in actual}
    for name in sorted(plain, key=len):
        for ending in _endings(name):
            by_ending.setdefault(ending, plain[name])
    matches = {}
    for tensor in expected:
        # Either the file puts words before the name, or it leaves out its first ones.
        shorter = [plain[ending] for ending in _endings(tensor.name)[:3] if ending in plain]
        match = by_ending.get(tensor.name, *shorter[:1])
        if match is not None:
            matches[tensor.name] = match
    return matches


def _plain(name: str) -> str:
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))


def _endings(name: str) -> list[str]:
    """The name, and what is left of it without its first words."""
    words = name.split(".")
    return [".".join(words[start:]) for start in range(len(words))]


def _list_of(name: str) -> tuple[str, int]:
    """The list of blocks that a tensor is in, and the number of its block; "" and -1 if none."""
    number = _NUMBER.search(name)
    return ("", -1) if number is None else (name[: number.start() - 1], int(number.group()))


def _different_depths(
    matches: Mapping[str, str],
    expected: tuple[ExpectedTensor, ...],
    actual: Mapping[str, TensorShape],
) -> dict[str, tuple[int, int]]:
    """Lists of blocks that are longer or shorter: blocks in the configuration, in the weights."""
    ours: dict[str, int] = {}
    names: dict[str, str] = {}
    for tensor in expected:
        blocks, number = _list_of(tensor.name)
        ours[blocks] = max(ours.get(blocks, 0), number + 1)
        if tensor.name in matches:
            names[_list_of(matches[tensor.name])[0]] = blocks
    theirs: dict[str, int] = {}
    for name in actual:
        blocks, number = _list_of(name)
        if blocks in names:
            theirs[names[blocks]] = max(theirs.get(names[blocks], 0), number + 1)
    return {
        blocks: (ours[blocks], count) for blocks, count in theirs.items() if count != ours[blocks]
    }


def _different_shapes(
    matches: Mapping[str, str],
    expected: tuple[ExpectedTensor, ...],
    actual: Mapping[str, TensorShape],
) -> list[str]:
    """One sentence for all blocks that differ in the same way."""
    groups: dict[tuple[str, TensorShape, TensorShape], list[str]] = {}
    for tensor in expected:
        name = matches.get(tensor.name)
        if name is not None and tuple(actual[name]) != tensor.shape:
            key = _NUMBER.sub("*", name), tensor.shape, tuple(actual[name])
            groups.setdefault(key, []).append(name)
    return [
        f"{_together(names)} {'has' if len(names) == 1 else 'have'} shape {ours} in the "
        f"configuration, but {theirs} in the weights."
        for (_, ours, theirs), names in groups.items()
    ]


def _missing(matches: Mapping[str, str], expected: list[ExpectedTensor]) -> list[str]:
    needed = [one for one in expected if not one.is_tied and one.part not in _OPTIONAL]
    missing = [one.name for one in needed if one.name not in matches]
    if not missing:
        return []
    verb = "is" if len(missing) == 1 else "are"
    sentence = (
        f"{_together(missing)} of {len(needed)} tensors in the configuration {verb} not in the "
        "weights."
    )
    return [sentence]


def _unexpected_biases(matches: Mapping[str, str], actual: Mapping[str, TensorShape]) -> list[str]:
    used = set(matches.values())
    stems = {name.removesuffix("weight") for name in used if name.endswith(".weight")}
    extra = [name for name in actual if name not in used and name.endswith(".bias")]
    biases = [name for name in extra if name.removesuffix("bias") in stems]
    if not biases:
        return []
    return [f"{_together(biases)} in the weights, but the configuration has 0 such biases."]


def _together(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


# --- What the configuration alone gives away: bottlenecks by theorem, depth by a fitted law -------


COUNTING_REFERENCE = "Rankscope, counting bound U, docs/proofs.md, section 7; Wies et al. (2021), "
COUNTING_REFERENCE += "arXiv:2105.03928"
SHARED_KEYS_REFERENCE = "Rankscope, visible forms of shared keys and values, docs/proofs.md, "
SHARED_KEYS_REFERENCE += "section 24; measurements in docs/token_mixers.md"
CAVEAT = (
    "The theorem is about self-attention without softmax and feed-forward layers; "
    "it bounds what can be expressed, not what is learned."
)
# The law was fitted on dense decoders; for these it is an analogy.
ENCODERS = ("bert", "albert", "roberta", "distilbert", "vit", "t5")


def shape_findings(configuration: Configuration) -> tuple[Finding, ...]:
    """Findings about a configuration, the weightiest first."""
    findings = [
        *_head_bottleneck(configuration),
        *_embedding_bottleneck(configuration),
        *_depth_by_law(configuration),
        *_grouped_keys(configuration),
        _regime(configuration),
    ]
    return tuple(sorted(findings, key=lambda finding: -finding.severity))


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
    size = configuration.latent or configuration.key_value_heads * configuration.head_size
    if not configuration.has_shared_keys or size >= configuration.width:
        return
    who = f"{configuration.heads} heads share {configuration.key_value_heads} keys and values"
    through, option = "key_value_heads x head_size", f"--kv-heads {configuration.key_value_heads}"
    if configuration.latent:
        who = f"{configuration.heads} heads read keys and values from {size:,} latent numbers"
        through, option = "the latent", f"--latent {size}"
    share = configuration.visible_share
    yield Finding(
        id="latent-keys" if configuration.latent else "grouped-keys",
        severity=Severity.NOTE,
        title=f"{who}: their maps have rank {size:,} at most, below the width of "
        f"{configuration.width:,}.",
        value=size,
        threshold=configuration.width,
        saving=None,
        reason=f"Keys and values of a block pass through {size:,} numbers per token ({through}); "
        f"queries and outputs are not affected. They see {100 * share:.3g} % at most of the linear "
        "forms of the tokens' Gram matrix, through which attention without softmax knows other "
        "tokens. Measured with a mask at width 4: 2 of 4 groups keep 102 of 255, one of 2 groups "
        f"253 of 400, a latent of half the width 178 of 400. {CAVEAT}",
        reference=SHARED_KEYS_REFERENCE,
        command=f"rankscope bounds polynomial-transformer --depth {configuration.depth} "
        f"--width {configuration.width} --heads {configuration.heads} "
        f"--head-size {configuration.head_size} {option} --causal --tokens 64",
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


# --- What the spectra of the weights give away ----------------------------------------------------


ENERGY = "99"  # percent of the squares of the singular values that a smaller factor shall keep
NEAR_RANDOM = 0.05  # Kolmogorov-Smirnov distance below which a spectrum looks random
_DERIVED = ("head ", "operator")  # products of heads, convolutions as operators
SPIKE = 10.0  # largest singular value over the random edge, from which it is worth a word


def weight_findings(
    rows: Sequence[TensorRow], parameters: Parameters, source: str
) -> tuple[Finding, ...]:
    """Findings about the weights, the weightiest first; `source` is named in their commands."""
    findings = [
        *_low_rank(rows, parameters, source),
        *_copies(rows, parameters, source),
        *_spikes(rows, source),
        *_near_random(rows, source),
    ]
    return tuple(sorted(findings, key=lambda finding: -finding.severity))


def _again(source: str) -> str:
    """The command that shows all rows; without a source it is the embedded model."""
    return f"rankscope audit {shlex.quote(source)} --json" if source else "rankscope audit --json"


def _smaller(source: str, saving: float) -> str:
    """The command that makes use of low ranks; a file of weights alone says no model."""
    keep = math.ceil(100 * (1 - saving)) / 100
    if not source:
        return f"rankscope compress transformer --keep {keep} --dry-run"
    if ":" in source or source in BUILT_IN or is_folder(source):
        return f"rankscope compress {shlex.quote(source)} --keep {keep} --dry-run"
    return _again(source)


def _count_text(number: int) -> str:
    return "1 matrix" if number == 1 else f"{number:,} matrices"


def factored_saving(matrix: MatrixRow) -> int:
    """Parameters that two factors save which keep 99 % of the squares; 0 if they save none."""
    rows, columns = matrix.shape
    return max(0, rows * columns - matrix.rank_at[ENERGY] * (rows + columns))


def _own(rows: Sequence[TensorRow]) -> Iterator[tuple[TensorRow, MatrixRow]]:
    """The matrices that hold a tensor's numbers: itself, or what is packed in it."""
    for row in rows:
        for matrix in row.matrices:
            if row.same_as is None and not matrix.name.startswith(_DERIVED):
                yield row, matrix


def _low_rank(rows: Sequence[TensorRow], parameters: Parameters, source: str) -> Iterator[Finding]:
    savings = [(factored_saving(matrix), row, matrix) for row, matrix in _own(rows)]
    savings = [entry for entry in savings if entry[0] > 0]
    if not savings:
        return
    saving = sum(saved for saved, _, _ in savings) / max(1, parameters.total)
    _, row, matrix = max(savings, key=lambda entry: entry[0])
    share, full = matrix.rank_at[ENERGY], min(matrix.shape)
    yield Finding(
        id="low-rank",
        severity=Severity.ADVICE,
        title=f"Two factors that keep {ENERGY} % of the squares would be smaller for "
        f"{_count_text(len(savings))}; most in {row.name}, rank {share:,} of {full:,}.",
        value=share,
        threshold=full,
        saving=round(saving, 4),
        reason="Truncating the singular values is the best approximation of a given rank in the "
        "mean square; what it does to the loss has to be measured.",
        reference="Eckart & Young (1936); measured spectra",
        command=_smaller(source, saving),
    )


def _copies(rows: Sequence[TensorRow], parameters: Parameters, source: str) -> Iterator[Finding]:
    copies = [row for row in rows if row.same_as is not None]
    if not copies:
        return
    size = sum(math.prod(row.shape) for row in copies)
    stored = parameters.total + size
    yield Finding(
        id="copies",
        severity=Severity.NOTE,
        title=f"{counted(len(copies), 'tensor')} with the same numbers as another one, "
        f"such as {copies[0].name} and {copies[0].same_as}.",
        value=len(copies),
        threshold=0,
        saving=round(size / max(1, stored), 4),
        reason="Tied weights need to be stored once; copies that are not tied train apart.",
        reference="equal bytes",
        command=_again(source),
    )


def _spikes(rows: Sequence[TensorRow], source: str) -> Iterator[Finding]:
    ratios = [
        (matrix.largest / matrix.random_edge, row, matrix)
        for row, matrix in _own(rows)
        if matrix.random_edge > 0
    ]
    high = [entry for entry in ratios if entry[0] > SPIKE]
    if not high:
        return
    ratio, row, matrix = max(high, key=lambda entry: entry[0])
    yield Finding(
        id="spikes",
        severity=Severity.NOTE,
        title=f"{len(high)} matrices have a singular value more than {SPIKE:.0f} times the edge "
        f"of a random matrix; the largest is {ratio:.3g} times, in {row.name}.",
        value=round(ratio, 3),
        threshold=SPIKE,
        saving=None,
        reason=f"Its largest singular value is {matrix.largest:.4g}: so far can a perturbation "
        "be carried by this matrix alone, and low precision loses the rest first.",
        reference="Marchenko & Pastur (1967); measured spectra",
        command=_again(source),
    )


def _near_random(rows: Sequence[TensorRow], source: str) -> Iterator[Finding]:
    own = list(_own(rows))
    near = [row for row, matrix in own if matrix.random_distance < NEAR_RANDOM]
    if not near:
        return
    yield Finding(
        id="near-random",
        severity=Severity.NOTE,
        title=f"{len(near)} of {len(own)} matrices have the spectrum of a random matrix, "
        f"such as {near[0].name}.",
        value=len(near),
        threshold=0,
        saving=None,
        reason=f"Their singular values are within {NEAR_RANDOM} (Kolmogorov-Smirnov) of those of "
        "independent entries: they may be untrained, or trained far from any low rank.",
        reference="Marchenko & Pastur (1967); measured spectra",
        command=_again(source),
    )
