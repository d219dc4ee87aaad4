"""Where a configuration and the weights beside it do not describe the same model."""

import re
from collections.abc import Iterable, Mapping

from rankscope.auditing.families.tensor_list import ExpectedTensor, Part

# A file may leave these out: it is then the same model without its last map.
_OPTIONAL = (Part.HEAD, Part.OTHER)
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
Shape = tuple[int, ...]


def contradictions(
    expected: Iterable[ExpectedTensor], actual: Mapping[str, Shape]
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
    found = [
        f"{name} has {ours} blocks in the configuration, but {theirs} in the weights."
        for name, (ours, theirs) in lists.items()
    ]
    found += _different_shapes(matches, expected, actual)
    found += _missing(matches, [one for one in expected if _list_of(one.name)[0] not in lists])
    found += _unexpected_biases(matches, actual)
    return tuple(found)


def _matches(expected: tuple[ExpectedTensor, ...], actual: Mapping[str, Shape]) -> dict[str, str]:
    """The name in the weights of every expected tensor that is there."""
    by_ending: dict[str, str] = {}
    plain = {_plain(name): name for name in actual}
    for name in sorted(plain, key=len):
        for ending in _endings(name):
            by_ending.setdefault(ending, plain[name])
    found = {}
    for tensor in expected:
        # Either the file puts words before the name, or it leaves out its first ones.
        shorter = [plain[ending] for ending in _endings(tensor.name)[:3] if ending in plain]
        match = by_ending.get(tensor.name, *shorter[:1])
        if match is not None:
            found[tensor.name] = match
    return found


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
    matches: Mapping[str, str], expected: tuple[ExpectedTensor, ...], actual: Mapping[str, Shape]
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
    matches: Mapping[str, str], expected: tuple[ExpectedTensor, ...], actual: Mapping[str, Shape]
) -> list[str]:
    """One sentence for all blocks that differ in the same way."""
    groups: dict[tuple[str, Shape, Shape], list[str]] = {}
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


def _unexpected_biases(matches: Mapping[str, str], actual: Mapping[str, Shape]) -> list[str]:
    used = set(matches.values())
    stems = {name.removesuffix("weight") for name in used if name.endswith(".weight")}
    extra = [name for name in actual if name not in used and name.endswith(".bias")]
    biases = [name for name in extra if name.removesuffix("bias") in stems]
    if not biases:
        return []
    return [f"{_together(biases)} in the weights, but the configuration has 0 such biases."]


def _together(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
