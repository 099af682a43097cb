"""What a page is given, and what it gives back: no sockets, no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from threading import Lock

    from client.cluster import Cluster as Client
    from tools.cluster import Cluster
    from tools.console.broker_port import Broker
    from tools.console.figures import Figures, Lags
    from tools.console.visible import VisibleTopic


class WrongQuestion(Exception):
    """What was asked for makes no sense; the text says what was wanted."""


class NotThere(Exception):
    """What was asked for does not exist; the text says what that is."""


class NotAllowed(Exception):
    """The user may not see this, or do it; the text says what it takes."""


class Visit(NamedTuple):
    """A question for a page.

    `cluster` asks the broker as the user who looks, and `client` makes one that writes; `topics`
    tells which of some topics this user may know of; `figures`, `lags` and `broker` are the
    broker's own and know no user, so that a page shows of them what `cluster` has told to exist.
    `query` is what stands behind '?', or in a form; `path` what the address names. `turn` is what
    `Reading` holds.
    """

    cluster: Cluster
    client: Callable[[], Client]
    topics: Callable[[Collection[str]], Mapping[str, VisibleTopic]]
    figures: Figures
    lags: Lags
    broker: Broker
    query: Mapping[str, str]
    path: Mapping[str, str]
    now_ms: int
    may_write: bool
    turn: Lock


class Shown(NamedTuple):
    """A template and what it shows; `status` is that of HTTP."""

    template: str
    facts: dict[str, Any]
    status: int = 200


class Bytes(NamedTuple):
    """Bytes to be kept under a name."""

    name: str
    content: bytes


class Moved(NamedTuple):
    """Something was done, and this page shows it."""

    to: str


if TYPE_CHECKING:
    Page = Callable[[Visit], Shown | Bytes | Moved]


def require_writable(visit: Visit) -> None:
    """Raises NotAllowed."""
    if not visit.may_write:
        raise NotAllowed("this console only reads: triglot serve --console-writable lets it write")


def number(
    query: Mapping[str, str], name: str, default: int, *, least: int = 0, most: int = (1 << 63) - 1
) -> int:
    """A whole number of a query. Raises WrongQuestion."""
    text = query.get(name, "").strip()
    if not text:
        return default
    digits = text.removeprefix("-")
    # Longer ones are no offsets, and take Python a while.
    if len(digits) < 20 and digits.isascii() and digits.isdecimal() and least <= int(text) <= most:
        return int(text)
    raise WrongQuestion(
        f"{name}: wanted a whole number from {least} to {most}, found '{text[:40]}'"
    )
