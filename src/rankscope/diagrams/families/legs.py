"""The numbered legs that decompositions share: sites I_1, I_2, … and bonds R_1, R_2, …."""

from rankscope.diagrams.parts import Index, IndexKind


def numbered(letter: str, place: int | str, size: int | None, kind: IndexKind) -> Index:
    """A leg such as i1, of size I_1.

    Example:
        >>> numbered("r", 12, 8, IndexKind.RANK)  # doctest: +NORMALIZE_WHITESPACE
        Index(name='r12', size=8, symbol='R_12', kind=<IndexKind.RANK: 'rank'>,
              label='R_{12}')
    """
    capital = letter.upper()
    return Index(f"{letter}{place}", size, f"{capital}_{place}", kind, f"{capital}_{{{place}}}")


def sites(sizes: tuple[int | None, ...], letter: str = "i") -> tuple[Index, ...]:
    """One open leg per size, counted from 1."""
    return tuple(
        numbered(letter, place, size, IndexKind.GENERIC) for place, size in enumerate(sizes, 1)
    )


def bonds(sizes: tuple[int | None, ...]) -> tuple[Index, ...]:
    """One bond per size, counted from 1."""
    return tuple(numbered("r", place, size, IndexKind.RANK) for place, size in enumerate(sizes, 1))


def names(indices: tuple[Index, ...]) -> tuple[str, ...]:
    """The names of indices."""
    return tuple(index.name for index in indices)
