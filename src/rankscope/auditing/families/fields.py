"""The keys of a configuration, read one by one; what does not fit is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.errors import ConfigurationError

_MAX_SIZE = 2**31 - 1
_SHOWN = 60  # characters of a value, at most


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
        return self._integer(name, low=1, default=default)

    def count(self, name: str, *, default: int) -> int:
        """An integer that may be zero.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._integer(name, low=0, default=default)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            ConfigurationError: if it is anything else.
        """
        value = self._value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._refusal(name, "true or false", value)
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of a few words, the first if it is absent.

        Raises:
            ConfigurationError: if it is anything else.
        """
        value = self._value(name)
        if value is None:
            return choices[0]
        if not isinstance(value, str) or value not in choices:
            raise self._refusal(name, f"one of {', '.join(choices)}", value)
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """A list of words, such as `architectures`; empty if absent.

        Raises:
            ConfigurationError: if it is anything else.
        """
        value = self._value(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
            raise self._refusal(name, "a list of words", value)
        return tuple(value)

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of integers, such as `mlp_only_layers`; empty if absent.

        Raises:
            ConfigurationError: if it is anything else.
        """
        value = self._value(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
            raise self._refusal(name, "a list of integers", value)
        return tuple(value)

    def _integer(self, name: str, *, low: int, default: int | None) -> int:
        value = self._value(name)
        if value is None and default is not None:
            return default
        # bool is an int to Python, but true is no size.
        if type(value) is not int or not low <= value <= _MAX_SIZE:
            raise self._refusal(name, f"an integer in {low}..{_MAX_SIZE}", value)
        return value

    def _key(self, name: str) -> str:
        alias = self.aliases.get(name)
        return name if alias is None else f"{alias} (or {name})"

    def _value(self, name: str) -> object:
        own = self.document.get(self.aliases.get(name, name))
        return self.document.get(name) if own is None else own

    def _refusal(self, name: str, wanted: str, value: object) -> ConfigurationError:
        shown = ascii(value)[:_SHOWN] if isinstance(value, str | int | float) else None
        return ConfigurationError(
            f"{self.who}: {self._key(name)} must be {wanted}, "
            f"got {shown or ('nothing' if value is None else f'a {type(value).__name__}')}."
        )
