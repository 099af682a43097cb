"""The declaration of keys, and the class of settings that is made of them.

A declaration is one call of `key()` in the body of a `Settings` class::

    num_partitions: int = key(
        "num.partitions", int32, 1, "Partitions of a topic created without a count.",
        check=at_least(1), since="0.8.0")

It gives the typed attribute, the parsing and its error, the row of DescribeConfigs, the
row of the documentation and the line of the sample file. Keys of Kafka that have no
meaning here are declared with `unused=` and the reason, most of them in tables of
`accepted()` rows, which have no attribute because nobody asks for their value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from config.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from config.kinds import Kind

T = TypeVar("T")
V = TypeVar("V", contravariant=True)


class Check(Generic[V]):
    """A condition on a parsed value, and the same in words, to be read after "wanted"."""

    __slots__ = ("accepts", "wish")

    def __init__(self, accepts: Callable[[V], bool], wish: str) -> None:
        self.accepts = accepts
        self.wish = wish


def at_least(low: float) -> Check[float]:
    """A number not below `low`."""
    return Check(lambda value: value >= low, f"at least {low}")


def between(low: float, high: float) -> Check[float]:
    """A number from `low` to `high`, both included."""
    return Check(lambda value: low <= value <= high, f"{low} to {high}")


def minus_one_or(check: Check[float]) -> Check[float]:
    """-1, which stands for "none" or "for ever", or what `check` accepts."""
    return Check(lambda value: value == -1 or check.accepts(value), f"{check.wish}, or -1")


def one_of(*allowed: str) -> Check[str]:
    """One of these words, in this spelling."""
    return Check(lambda value: value in allowed, "one of " + ", ".join(allowed))


def each_of(*allowed: str) -> Check[tuple[str, ...]]:
    """A list, empty or not, of these words."""
    return Check(
        lambda value: all(entry in allowed for entry in value), "a list of " + ", ".join(allowed)
    )


NOT_EMPTY: Check[str] = Check(bool, "a text that is not empty")


class Key:
    """One declared key.

    `attribute` is the Python name, or "" for a key without one. `unused` is the reason
    why a value has no effect, or "". `broker` names the broker keys a topic key falls
    back to, the most specific first. `default_note` explains a default that is not Kafka's.
    `floor` names a key of the broker whose value the default is never below.
    """

    __slots__ = (
        "attribute",
        "broker",
        "check",
        "default",
        "default_note",
        "doc",
        "dynamic",
        "floor",
        "internal",
        "kind",
        "name",
        "since",
        "unused",
    )

    def __init__(
        self,
        name: str,
        kind: Kind[Any],
        default: Any,
        doc: str,
        *,
        check: Check[Any] | None,
        since: str,
        unused: str,
        dynamic: bool,
        broker: tuple[str, ...],
        default_note: str,
        internal: bool,
        floor: str,
    ) -> None:
        self.name = name
        self.attribute = ""
        self.kind = kind
        self.default = default
        self.doc = doc
        self.check = check
        self.since = since
        self.unused = unused
        self.dynamic = dynamic
        self.broker = broker
        self.default_note = default_note
        self.internal = internal
        self.floor = floor

    @property
    def sensitive(self) -> bool:
        return self.kind.name == "password"

    def of_one_listener(self, name: str) -> Key:
        """The same key under a name of a single listener; unset, that of all listeners holds."""
        from copy import copy  # few brokers have one

        one = copy(self)
        one.name, one.attribute, one.default = name, "", None
        return one

    def parse(self, text: str) -> Any:
        """The value of `text`; ValueError with the reason when it has none."""
        try:
            value = self.kind.parse(text.strip())
        except ValueError as error:
            raise ValueError(f"wanted {error}") from None
        if self.check is not None and not self.check.accepts(value):
            raise ValueError(f"wanted {self.check.wish}")
        return value

    def format(self, value: Any) -> str | None:
        """The text of a value, as a file would give it; None for no value."""
        return None if value is None else self.kind.format(value)

    def problem(self, source: str, text: str, reason: str) -> Problem:
        return Problem(source, self.name, None if self.sensitive else text, reason)


@overload
def key(
    name: str,
    kind: Kind[T],
    default: None,
    doc: str,
    *,
    check: Check[T] | None = None,
    since: str,
    unused: str = "",
    dynamic: bool = False,
    broker: tuple[str, ...] = (),
    default_note: str = "",
    internal: bool = False,
    floor: str = "",
) -> T | None: ...
@overload
def key(
    name: str,
    kind: Kind[T],
    default: T,
    doc: str,
    *,
    check: Check[T] | None = None,
    since: str,
    unused: str = "",
    dynamic: bool = False,
    broker: tuple[str, ...] = (),
    default_note: str = "",
    internal: bool = False,
    floor: str = "",
) -> T: ...
def key(
    name: str,
    kind: Kind[Any],
    default: Any,
    doc: str,
    *,
    check: Check[Any] | None = None,
    since: str,
    unused: str = "",
    dynamic: bool = False,
    broker: tuple[str, ...] = (),
    default_note: str = "",
    internal: bool = False,
    floor: str = "",
) -> Any:
    """Declares a key with an attribute.

    Typed as the value, because that is what reading the attribute of an instance gives.
    """
    return Key(
        name,
        kind,
        default,
        doc,
        check=check,
        since=since,
        unused=unused,
        dynamic=dynamic,
        broker=broker,
        default_note=default_note,
        internal=internal,
        floor=floor,
    )


def accepted(reason: str, rows: Iterable[tuple[Any, ...]]) -> list[Key]:
    """Declares keys of Kafka that are read, checked for their kind, and have no effect.

    A row is (name, kind, default) or (name, kind, default, check).
    """
    return [
        Key(
            name,
            kind,
            default,
            "",
            check=check[0] if check else None,
            since="",
            unused=reason,
            dynamic=False,
            broker=(),
            default_note="",
            internal=False,
            floor="",
        )
        for name, kind, default, *check in rows
    ]


class Settings:
    """Frozen values of the keys declared in a class body.

    An instance holds the values under the attributes' names; the class holds the `Key`s
    under the same names. Two are equal when they are of one class and all values are.
    """

    KEYS: ClassVar[dict[str, Key]] = {}

    def __init_subclass__(cls) -> None:
        keys = {
            name: one
            for base in reversed(cls.__mro__[1:])
            for name, one in getattr(base, "KEYS", {}).items()
        }
        for attribute, value in vars(cls).items():
            if isinstance(value, Key):
                value.attribute = attribute
                keys[value.name] = value
        cls.KEYS = keys

    def _fill(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings are frozen; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"settings are frozen; {name} cannot be removed")

    def _values(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name[0] != "_"}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().items()))

    def __repr__(self) -> str:
        changed = (
            f"{one.attribute}={getattr(self, one.attribute)!r}"
            for one in self.KEYS.values()
            if one.attribute and not one.sensitive and getattr(self, one.attribute) != one.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"
