"""The keys of a configuration, read one by one; what does not fit is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from rankscope.errors import ConfigurationError, DocumentError
from rankscope.strict_json import Choice, Flag, Integer, ListOf, Reader, Text

_MAX_SIZE = 2**31 - 1
T = TypeVar("T")


@dataclass(frozen=True)
class Fields:
    """A document under the names that all families share.

    Null counts as absent, as it does where such files come from.

    Args:
        document: keys and values of the file.
        aliases: the family's own key for a shared name, such as `{"hidden_size": "n_embd"}`.
        family: its name, for messages.
        who: the file's name, for messages.
    """

    document: Mapping[str, object]
    aliases: Mapping[str, str]
    family: str
    who: str

    def has(self, name: str) -> bool:
        """Whether there is a value."""
        return self._value(name) is not None

    def require(self, names: tuple[str, ...]) -> None:
        """Refuse a document that lacks any of them, naming all that are missing.

        Raises:
            ConfigurationError: if some are missing.
        """
        missing = [self._key(name) for name in names if not self.has(name)]
        if missing:
            raise ConfigurationError(
                f"{self.who}: a configuration of family {self.family!r} needs "
                f"{len(names)} keys, and {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing."
            )

    def size(self, name: str, *, default: int | None = None) -> int:
        """A positive integer.

        Raises:
            ConfigurationError: if it is missing without a default, or anything else.
        """
        return self._read(name, Integer(1, _MAX_SIZE), default)

    def count(self, name: str, *, default: int) -> int:
        """An integer that may be zero.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._read(name, Integer(0, _MAX_SIZE), default)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._read(name, Flag(), default)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of a few words, the first if it is absent.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._read(name, Choice(choices), choices[0])

    def words(self, name: str) -> tuple[str, ...]:
        """A list of words, such as `architectures`; empty if absent.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._read(name, ListOf(Text()), ())

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of integers, such as `mlp_only_layers`; empty if absent.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._read(name, ListOf(Integer()), ())

    def _read(self, name: str, reader: Reader[T], default: T | None) -> T:
        value = self._value(name)
        if value is None and default is not None:
            return default
        try:
            return reader.read(value)
        except DocumentError as refused:
            place = "".join(f"[{key}]" for key in refused.place)
            raise ConfigurationError(
                f"{self.who}, at {self._key(name)}{place}: {refused}."
            ) from refused

    def _key(self, name: str) -> str:
        alias = self.aliases.get(name)
        return name if alias is None else f"{alias} (or {name})"

    def _value(self, name: str) -> object:
        own = self.document.get(self.aliases.get(name, name))
        return self.document.get(name) if own is None else own
