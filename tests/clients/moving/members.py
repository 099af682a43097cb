"""Members of groups that stay while their broker becomes another one on the same address.

with Members(bootstrap, folder, protocols=("classic", "consumer")) as members:
    members.go_on("they joined")
    ...  # another broker
    members.go_on("the broker was exchanged")
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.clients.groups.group import Group
from tests.clients.groups.group_clients import BY_KEY, CLASSIC, CONSUMER
from tests.clients.groups.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

TOPIC = "read-by-groups"
CLIENTS = {
    CLASSIC: ("java-4", "confluent-kafka"),
    CONSUMER: ("java-4-consumer", "confluent-kafka-consumer"),
}
"""By protocol; those of one understand each other's assignors."""


class Members:
    """For each protocol a group, with a member of each client in a program of its own.

    Raises `NotAvailable`.
    """

    def __init__(self, bootstrap: str, folder: Path, *, protocols: Iterable[str]) -> None:
        with ExitStack() as stack:
            self._source = Source(bootstrap, TOPIC, seed=0)
            stack.callback(self._source.close)
            self._groups = [Group(name, bootstrap, TOPIC, folder) for name in protocols]
            for group in self._groups:
                stack.callback(group.close)
                for key in CLIENTS[group.name]:
                    client = BY_KEY[key]
                    group.join(group.host(client), key, words=client.range_words or client.words)
            self._closing = stack.pop_all()

    def go_on(self, after: str) -> None:
        """All partitions are shared out, and what is written from now on is read and committed."""
        for group in self._groups:
            group.wait_until_shared(after)
        written = self._source.next_round()
        for group in self._groups:
            group.wait_until_read(written)

    def faults(self) -> list[str]:
        """What was lost, or read by two at once."""
        return [fault for group in self._groups for fault in group.ledger.faults()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.close()
