"""What no Kafka client is told, asked of all processes of a directory and joined.

Each tells of its share: of the partitions that it leads, of the groups that it coordinates, of the
clients that it has served. One that is away does not blank a page: the others are shown, and in the
figures that are asked for again and again what it told last, so that neither sizes nor rates jump.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from protocol.client_usage import ClientUsage
from protocol.client_verdicts import describe
from storage.clients_file import SeenClients, added_up
from tools.console.broker_port import NoAnswer
from tools.console.figures import TopicFigures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tools.console.broker_port import BrokerPort

    Page = dict[str, Any]
    Rows = dict[str, tuple[int, ...]]

ASKED_AT_A_TIME = 8
TOPICS, GROUPS = "/topics", "/groups"
COUNTED = ("bytes_in", "bytes_out")
"""The figures of a topic that a process counts from its start."""


class JoinedPorts:
    """The ports of all processes. For any thread."""

    def __init__(self, ports: Mapping[int, BrokerPort]) -> None:
        """`ports` by the ids of the processes as brokers."""
        self._ports = ports
        self._threads = ThreadPoolExecutor(min(len(ports), ASKED_AT_A_TIME))
        # Two at once could take an older page for the newer one.
        self._turns = {path: threading.Lock() for path in (TOPICS, GROUPS)}
        self._topics = _Topics()
        self._groups: dict[int, Page] = {}
        self.away: frozenset[int] = frozenset()

    def ask(self, path: str) -> Page:
        """What the pages say together. Raises NoAnswer if no process answers."""
        turn: AbstractContextManager[Any] = self._turns.get(path) or nullcontext()
        with turn:
            return self._joined(path, self._answers(path))

    def _answers(self, path: str) -> dict[int, Page]:
        """By process, of those that answer."""
        asked = {
            node_id: self._threads.submit(_asked, port, path)
            for node_id, port in self._ports.items()
        }
        found, why = {}, ""
        for node_id, answer in asked.items():
            try:
                found[node_id] = answer.result()
            except NoAnswer as error:
                why = str(error)
        self.away = frozenset(asked.keys() - found.keys())
        if not found:
            raise NoAnswer(why)
        return found

    def _joined(self, path: str, answers: Mapping[int, Page]) -> Page:
        pages = list(answers.values())
        if path == TOPICS:
            return pages[0] | {"topics": self._topics.joined(answers)}
        if path == GROUPS:
            self._groups |= answers
            return pages[0] | {"groups": _groups(self._groups.values())}
        kind = path.partition("?")[0]
        if kind == GROUPS:
            return pages[0] | {"lags": [lag for page in pages for lag in page["lags"]]}
        if kind == "/segments":
            partitions = [one for page in pages for one in page["partitions"]]
            partitions.sort(key=lambda one: one["partition"])
            left_out = sum(page["left_out"] for page in pages)
            return pages[0] | {"partitions": partitions, "left_out": left_out}
        assert kind == "/clients", path
        return _clients(pages)


def _asked(port: BrokerPort, path: str) -> Page:
    port.require_there()
    page: Page = port.ask(path)
    return page


class _Topics:
    """The figures of all topics. A process that begins again counts from nothing: what it had
    counted before is added, so that no sum goes back."""

    def __init__(self) -> None:
        self._rows: dict[int, Rows] = {}
        self._before: dict[int, dict[str, list[int]]] = {}

    def joined(self, answers: Mapping[int, Page]) -> dict[str, list[Any]]:
        """The columns of all processes, with what they have told now."""
        for node_id, page in answers.items():
            self._take(node_id, page["topics"])
        # Every process knows all topics, also those of which it leads nothing.
        names = dict.fromkeys(name for one in answers for name in self._rows[one])
        sums = {name: [0] * len(TopicFigures._fields) for name in names}
        for node_id, rows in self._rows.items():
            before = self._before[node_id]
            for name, row in rows.items():
                if name in sums:
                    sums[name] = list(map(sum, zip(sums[name], row, strict=True)))
                    for number, more in enumerate(before.get(name, ())):
                        sums[name][number] += more
        columns = zip(*sums.values(), strict=True) if sums else [()] * len(TopicFigures._fields)
        joined: dict[str, list[Any]] = {"names": list(sums)}
        for field, column in zip(TopicFigures._fields, columns, strict=True):
            joined[field] = list(column)
        return joined

    def _take(self, node_id: int, columns: Mapping[str, list[Any]]) -> None:
        figures = zip(*(columns[field] for field in TopicFigures._fields), strict=True)
        rows: Rows = dict(zip(columns["names"], figures, strict=True))
        before = self._before.setdefault(node_id, {})
        for name, old in self._rows.get(node_id, {}).items():
            new = rows.get(name)
            if new is None:
                before.pop(name, None)
                continue
            lost = [max(0, old[number] - new[number]) for number in range(len(COUNTED))]
            if any(lost):
                known = before.get(name, [0] * len(COUNTED))
                before[name] = list(map(sum, zip(known, lost, strict=True)))
        self._rows[node_id] = rows


assert TopicFigures._fields[: len(COUNTED)] == COUNTED


def _groups(pages: Iterable[Page]) -> dict[str, list[float]]:
    """As `broker.metrics.figures` tells of one process."""
    found: dict[str, list[float]] = {}
    for page in pages:
        for name, (partitions, records, seconds, members) in page["groups"].items():
            row = found.setdefault(name, [0, 0, 0.0, 0])
            row[0] += partitions
            row[1] += records
            row[2] = max(row[2], seconds)
            row[3] += members
    return found


def _clients(pages: Iterable[Page]) -> Page:
    seen = added_up(
        [
            SeenClients([ClientUsage.of_json(one) for one in page["clients"]], page["forgotten"])
            for page in pages
        ]
    )
    return {"forgotten": seen.forgotten, "clients": [describe(one) for one in seen.clients]}
