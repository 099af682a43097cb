"""The observer of a proxy, which makes entries of what passes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from tools.tap.conversation import ANSWER, CLOSED, OPENED, REQUEST, Entry
from tools.tap.words import Words, has_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.faults.proxy.frames import RequestHead

WAITING_MAX = 1_000
"""Requests of a connection whose time is remembered: as many as the proxy lets wait."""


class Filter(NamedTuple):
    """Which requests are told, with their answers: patterns of client ids, and names of APIs.
    Nothing is all."""

    clients: tuple[str, ...] = ()
    apis: tuple[str, ...] = ()

    def lets(self, head: RequestHead | None) -> bool:
        if head is None:
            return not self.clients and not self.apis
        is_client = any(fnmatchcase(head.client_id, pattern) for pattern in self.clients)
        return (is_client or not self.clients) and (head.api.name in self.apis or not self.apis)


class Overhearing:
    """Has an entry told of each request and answer, and of each connection unless it filters."""

    def __init__(
        self,
        tell: Callable[[Entry], None],
        *,
        words: Words,
        wanted: Filter,
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._tell = tell
        self._words = words
        self._wanted = wanted
        self._now_ms = now_ms
        self._monotonic_s = monotonic_s
        self._numbers: dict[str, int] = {}
        self._count = 0
        self._asked_at: dict[tuple[str, int], float] = {}

    def opened(self, peer: str, broker: str) -> None:
        self._count += 1
        self._numbers[peer] = self._count
        if self._wanted == Filter():
            self._tell(self._entry(OPENED, peer)._replace(broker=broker))

    def asked(self, peer: str, head: RequestHead | None, frame: bytes) -> None:
        if not self._wanted.lets(head):
            return
        if head is not None:
            if len(self._asked_at) >= WAITING_MAX * len(self._numbers):
                del self._asked_at[next(iter(self._asked_at))]
            self._asked_at[peer, head.correlation_id] = self._monotonic_s()
        text = self._words.request(head, frame)
        self._tell(self._of_head(REQUEST, peer, head, frame)._replace(text=text))

    def answered(self, peer: str, head: RequestHead | None, frame: bytes) -> None:
        # Decoded whoever asked: names of topics are learned so.
        text = self._words.answer(head, frame)
        if not self._wanted.lets(head):
            return
        took_ms = None
        if head is not None:
            asked_at = self._asked_at.pop((peer, head.correlation_id), None)
            if asked_at is not None:
                took_ms = round((self._monotonic_s() - asked_at) * 1000, 3)
        entry = self._of_head(ANSWER, peer, head, frame)
        self._tell(entry._replace(text=text, took_ms=took_ms))

    def closed(self, peer: str) -> None:
        entry = self._entry(CLOSED, peer)
        self._numbers.pop(peer, None)
        for key in [key for key in self._asked_at if key[0] == peer]:
            del self._asked_at[key]
        if self._wanted == Filter():
            self._tell(entry)

    def _entry(self, what: str, peer: str) -> Entry:
        return Entry(what, self._now_ms(), self._numbers.get(peer, 0), peer)

    def _of_head(self, what: str, peer: str, head: RequestHead | None, frame: bytes) -> Entry:
        entry = self._entry(what, peer)
        if head is None:
            return entry
        return entry._replace(
            client=head.client_id,
            api=head.api.name,
            version=head.version,
            correlation_id=head.correlation_id,
            frame=None if has_secrets(head.api) else frame,
        )
