r"""Labels: X_0, X_1, … for values, F, F', … for sizes, 1/√D for scales, W^Q for projections."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Box, Call, Network, Step, Sum, diagrams_of
from rankscope.diagrams.parts import PARAMETER_ROLES, Index, Node, Region, Role
from rankscope.reading.drafting import primed

# Projections of attention, by the names that people give them.
PROJECTIONS: Mapping[str, str] = {
    **dict.fromkeys(("q", "query", "q_proj", "to_q", "wq", "w_q", "query_proj"), "Q"),
    **dict.fromkeys(("k", "key", "k_proj", "to_k", "wk", "w_k", "key_proj"), "K"),
    **dict.fromkeys(("v", "value", "v_proj", "to_v", "wv", "w_v", "value_proj"), "V"),
    **dict.fromkeys(("o", "out_proj", "o_proj", "to_out", "wo", "w_o", "c_proj", "proj"), "O"),
}

# Joint layers whose three parts are queries, keys and values.
JOINT = ("qkv", "c_attn", "in_proj", "to_qkv", "query_key_value", "Wqkv")
PARTS: Mapping[str, str] = {"query": "Q", "key": "K", "value": "V"}


def is_joint(array: str) -> bool:
    """Whether an array is the weight or the bias of a joint layer, by its name.

    Example:
        >>> is_joint("layers.0.self_attn.in_proj_weight"), is_joint("blocks.0.qkv.bias")
        (True, True)
    """
    path, _, word = array.rpartition(".")
    if word in ("weight", "bias"):
        return path.rpartition(".")[2] in JOINT
    return word.removesuffix("_weight").removesuffix("_bias") in JOINT


def part_name(step: str, part: str) -> str:
    """Name of the step that makes one part of a joint layer.

    Example:
        >>> part_name("blocks.0.qkv", "key"), part_name("layers.0.self_attn.linear_2", "key")
        ('blocks.0.qkv.key', 'layers.0.self_attn.key')
    """
    path, _, word = step.rpartition(".")
    return f"{path if re.fullmatch(r'linear(_[0-9]+)?', word) else step}.{part}".lstrip(".")


def marked(label: str, mark: str) -> str:
    """A label with the mark of a part; an upper mark that is there already gives way."""
    return rf"{label.partition('^')[0]}^{{{mark}}}"


def weight_label(array: str) -> str:
    r"""TeX for a weight, from the last word of its module's path.

    Example:
        >>> weight_label("layers.0.linear1.weight")
        '\\mathbf{W}_{1}'
        >>> weight_label("q_proj.weight")
        '\\mathbf{W}^{Q}'
        >>> weight_label("weight")
        '\\mathbf{W}'
        >>> weight_label("lstm.weight_hh_l1"), weight_label("lstm.bias_ih_l0")
        ('\\mathbf{U}_{1}', '\\mathbf{b}_{0}')
    """
    recurrent = re.search(r"\b(weight_ih|weight_hh|bias_[ih]h)(?:_l(\d+))?(?:_reverse)?$", array)
    if recurrent is not None:
        letter = {"weight_ih": "W", "weight_hh": "U"}.get(recurrent[1], "b")
        return rf"\mathbf{{{letter}}}" + (f"_{{{recurrent[2]}}}" if recurrent[2] else "")
    path = array.rpartition(".")[0]
    word = path.rpartition(".")[2]
    if word in PROJECTIONS:
        return rf"\mathbf{{W}}^{{{PROJECTIONS[word]}}}"
    number = re.search(r"\d+$", word)
    return rf"\mathbf{{W}}_{{{number.group()}}}" if number else r"\mathbf{W}"


def input_label(name: str, position: int) -> str:
    r"""TeX for an input of a module: the first is X, others say their name.

    Example:
        >>> input_label("memory", 1)
        '\\mathbf{X}_{\\mathrm{memory}}'
    """
    if position == 0:
        return r"\mathbf{X}_{0}"
    word = re.sub(r"[^A-Za-z0-9]", r"\\,", name)
    return rf"\mathbf{{X}}_{{\mathrm{{{word}}}}}"


def fraction_label(number: float) -> str:
    r"""TeX for a constant.

    Example:
        >>> fraction_label(0.25)
        '\\frac{1}{4}'
    """
    if number == 1.0:
        return r"\mathbf{1}"
    whole = round(1.0 / number)
    return rf"\frac{{1}}{{{whole}}}" if 1.0 / whole == number else f"{number:g}"


WORD = re.compile(r"[A-Za-z_]\w*")


def captioned(network: Network, inputs: Sequence[str]) -> Network:
    """The same network with a label on every step, and on every node that reads one."""
    labels = {name: input_label(name, position) for position, name in enumerate(inputs)}
    is_single = len(network.steps) == 1
    if is_single and inputs:
        labels[inputs[0]] = r"\mathbf{X}"
    number = 0
    steps = []
    for step in network.steps:
        if step.label is None:
            number += 1
        usual = r"\mathbf{Y}" if is_single else rf"\mathbf{{X}}_{{{number}}}"
        label = step.label or usual
        for place, array in enumerate(step.arrays):
            labels[array] = label if not place else rf"{label}^{{({place + 1})}}"
        steps.append(Step(step.name, _body(step.body, labels), label))
    return replace(network, steps=tuple(steps))


def _body(body: Body, labels: Mapping[str, str]) -> Body:
    if isinstance(body, Box):
        inner = _body_nodes(body.diagram, labels)
        return replace(body, diagram=inner)
    if isinstance(body, Call):
        return replace(body, diagram=_body_nodes(body.diagram, labels))
    symbols = _symbols(body)
    if isinstance(body, Sum):
        terms = (
            replace(term, diagram=_diagram(term.diagram, labels, symbols)) for term in body.terms
        )
        return replace(body, terms=tuple(terms))
    return _diagram(body, labels, symbols)


def _body_nodes(diagram: Diagram, labels: Mapping[str, str]) -> Diagram:
    """The picture of a call, with a label on everything that it takes."""
    nodes = tuple(
        replace(node, label=weight_label(node.source))
        if node.role in PARAMETER_ROLES and node.label is None
        else _node(node, labels)
        for node in diagram.nodes
    )
    return replace(diagram, nodes=nodes)


Symbols = Mapping[tuple[str, int | None], int]


def _symbols(body: Body) -> Symbols:
    """How many primes a letter has for each size: none for the size that comes first."""
    primes: dict[tuple[str, int | None], int] = {}
    counts: dict[str, int] = {}
    for diagram in diagrams_of(body):
        held = [index for node in diagram.nodes for index in node.indices]
        held += [convolution.output for convolution in diagram.convolutions]
        for index in (diagram.index_by_name[name] for name in held):
            stem = _stem(index)
            if stem and (stem, index.size) not in primes:
                primes[(stem, index.size)] = counts.get(stem, 0)
                counts[stem] = counts.get(stem, 0) + 1
    return primes


def _stem(index: Index) -> str:
    return (index.symbol or "").rstrip("0123456789")


def _diagram(diagram: Diagram, labels: Mapping[str, str], symbols: Symbols) -> Diagram:
    indices = {index.name: _index(index, symbols) for index in diagram.indices}
    words = {
        old.symbol: indices[old.name].symbol or old.symbol for old in diagram.indices if old.symbol
    }
    changed = replace(
        diagram,
        indices=tuple(indices.values()),
        nodes=tuple(_node(node, labels) for node in diagram.nodes),
        regions=tuple(_with_words(region, words) for region in diagram.regions),
    )
    regions = tuple(_with_root(changed, region) for region in changed.regions)
    return replace(changed, regions=regions)


def _index(index: Index, symbols: Symbols) -> Index:
    stem = _stem(index)
    if not stem:
        return index
    primes = symbols[(stem, index.size)]
    if not primes:
        return replace(index, symbol=stem, label=None)
    return replace(index, symbol=f"{stem}{primes + 1}", label=primed(stem, primes))


def _node(node: Node, labels: Mapping[str, str]) -> Node:
    if node.role is not Role.DATA or node.source not in labels:
        return node
    label = labels[node.source]
    if node.rows is not None:
        start, stop = node.rows
        part = f"{start // (stop - start) + 1}" if not start % (stop - start) else f"{start}:{stop}"
        label = rf"{label}^{{({part})}}"
    return replace(node, label=label)


def _with_words(region: Region, words: Mapping[str, str]) -> Region:
    if region.scale is None:
        return region
    scale = WORD.sub(lambda word: words.get(word.group(), word.group()), region.scale)
    return replace(region, scale=scale)


def _with_root(diagram: Diagram, region: Region) -> Region:
    """A number that is one over the root of a summed size is written as that."""
    try:
        number = float(region.scale or "")
    except ValueError:
        return region
    structure = diagram.structure
    held = {
        index
        for name in structure.nodes_inside[region.name]
        for index in diagram.node_by_name[name].indices
    }
    for index in diagram.indices:
        summed = index.name in held and index.name not in structure.legs[region.name]
        if summed and index.size is not None and float(index.size) ** -0.5 == number:
            return replace(region, scale=f"{index.symbol or index.name}**-0.5")
    return region
