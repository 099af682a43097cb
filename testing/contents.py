"""What is in a broker, asked of it as a client.

The modules that ask are imported with the first question: a start does not wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testing.settings import CLIENT_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from broker.faults.conversations import Sent
    from client.cluster import Cluster
    from testing.control import Control
    from testing.faults import Clock, Faults
    from testing.groups import Group
    from testing.topics import Record, Topic

TIMEOUT_S = 10.0
"""Time for an answer of the broker."""


def new_cluster(bootstrap: str) -> Cluster:
    """A client of a broker."""
    from client.cluster import Cluster

    return Cluster(bootstrap, timeout_s=TIMEOUT_S, client_id=CLIENT_ID.encode())


class Contents:
    """The topics and groups whose names begin with `prefix`; what is asked leaves the prefix out.

    All of it is blocking, and for one thread at a time.
    """

    prefix = ""

    @property
    def cluster(self) -> Cluster:
        """A client of the broker; connects when it is first asked something."""
        raise NotImplementedError

    @property
    def control(self) -> Control:
        """The interface of the broker's faults (docs/faults.md), without a port."""
        raise NotImplementedError

    @property
    def faults(self) -> Faults:
        """What has the broker do wrong; a new start of its process forgets all faults."""
        from testing.faults import Faults

        return Faults(self.control)

    @property
    def clock(self) -> Clock:
        """The clocks and timers of the broker; a new start of its process has the machine's."""
        from testing.faults import Clock

        return Clock(self.control)

    def conversations(
        self, *, client: str | None = None, api: str | None = None, after: int = 0
    ) -> list[Sent]:
        """The last requests, oldest first: of a client id, of an API, with numbers above `after`.

        Those that answer the questions of this class are left out unless their client is named.
        """
        from testing.faults import conversations

        sent = conversations(self.control, client=client, api=api, after=after)
        return [one for one in sent if client is not None or one.client != CLIENT_ID]

    def name(self, name: str) -> str:
        """The name of a topic, a group or a transactional id as clients are to use it."""
        return self.prefix + name

    def topic(self, name: str) -> Topic:
        """A topic, which need not exist yet."""
        from testing.topics import Topic

        return Topic(self._client, self.name(name))

    def topics(self) -> list[str]:
        """The names of all topics but the internal ones, sorted."""
        return [self._short(one) for one in sorted(self.cluster.topics()) if self._is_here(one)]

    def group(self, group_id: str) -> Group:
        """A consumer group, which need not exist yet."""
        from testing.groups import Group

        return Group(self._client, self.name(group_id))

    def groups(self) -> dict[str, str]:
        """The state of each group by its id, as in `{"billing": "Stable"}`."""
        found = self.cluster.groups().items()
        return {self._short(one): state for one, state in found if self._is_here(one)}

    def assert_no_duplicates(
        self, topic: str, *, by: Callable[[Record], Hashable] | None = None
    ) -> None:
        """Fail if two committed records of a topic have the same key and value, or the same result
        of `by`; the AssertionError names them."""
        from testing.topics import assert_no_duplicates

        assert_no_duplicates(self.topic(topic), by=by)

    def _client(self) -> Cluster:
        return self.cluster

    def _short(self, name: str) -> str:
        return name.removeprefix(self.prefix)

    def _is_here(self, name: str) -> bool:
        return name.startswith(self.prefix)
