"""Gathering of consumers that start together, in a classic group whose rebalances are not delayed.

A group that was empty takes its first member at once, alone. Where others come a moment later, the
first has everything by then and learns of them with its next heartbeat, and they have nothing until
it has joined again: seconds, and a rebalance more. So for a moment after a group has left Empty

- the assignment of a member that is alone in its generation is held back while there are signs of
  others: an id that was given out; clients that looked for the group's coordinator since the member
  first asked to join, or shortly before it as another than the member; a connection that was opened
  since then and has had no time for that yet. Signs come a few ms after the first request, so for
  that long nothing is given in any case. Who joins meanwhile makes the first join again, before it
  was given anything;
- a rebalance that all members have joined waits until joins have stopped coming, and for clients
  that looked for the coordinator: librdkafka may join 50 ms after that, where it had to ask twice.

librdkafka counts on it: its consumers that start together are to be assigned once (its test 0113).
Apache Kafka delays the first rebalance by seconds for this, whoever comes
(`group.initial.rebalance.delay.ms`); where that is set, nothing here is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.classic.members import NEVER

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from broker.coordinator.classic.arrivals import Arrivals, Search

    Assignments = Mapping[str, bytes]
    """By member ids, the clients' own bytes."""

LIMIT_MS = 120
"""From the first join of an empty group on; after that nobody is waited for. Of two consumers that
librdkafka starts one after the other the second has joined 80 ms after the first at the latest."""
SIGNS_MS = 15
"""From the first request to the first sign of others, and from a connection to a search. Of those
two the second has opened its connection within 5 ms, and looks for the coordinator 4 ms later."""
OWN_SEARCHES = 2
"""So often librdkafka looks for the coordinator before it joins; others do so once."""
QUIET_MS = 30
"""Without a join: nobody else is coming."""


class Gathering:
    """The wait of one group. Times are ms of the group's clock.

    `limit_ms` of 0 is for groups that never wait. `deadline_ms` is when to look again, or NEVER.
    """

    __slots__ = (
        "_connections",
        "_end_ms",
        "_first_ms",
        "_group_id",
        "_held",
        "_last_join_ms",
        "_limit_ms",
        "_signs_end_ms",
        "deadline_ms",
    )

    def __init__(self, group_id: str, limit_ms: int) -> None:
        self._group_id = group_id
        self._limit_ms = limit_ms
        self._first_ms = self._signs_end_ms = self._last_join_ms = self._end_ms = -NEVER
        self._connections = 0
        self._held: Assignments | None = None
        self.deadline_ms = NEVER

    def see_first(self, now_ms: int, arrivals: Arrivals) -> None:
        """A client asks to join an empty group."""
        self._first_ms, self._signs_end_ms = now_ms, now_ms + SIGNS_MS
        self._connections = arrivals.connections()

    def begin(self, now_ms: int) -> None:
        """The first member has joined."""
        self._end_ms = now_ms + self._limit_ms

    def see_join(self, now_ms: int) -> None:
        """A member has joined, or joined again."""
        self._last_join_ms = now_ms

    def stop_looking(self) -> None:
        """The group has gone on to another state: what was held back is out of date."""
        self._held = None
        self.deadline_ms = NEVER

    def is_quiet(self, now_ms: int) -> bool:
        """Whether a rebalance that all have joined may be completed; if not, it is to be looked at
        again at the deadline."""
        return self._is_over(min(self._last_join_ms + QUIET_MS, self._end_ms), now_ms)

    def expects_others(self, clients: Container[str], now_ms: int, arrivals: Arrivals) -> bool:
        """Whether a rebalance that all have joined waits on: a client that is none of these
        members' has looked for the coordinator. It is looked at again at the deadline."""
        searches = self._searches(arrivals)
        if all(search.client_id in clients for search in searches):
            return False
        return not self._is_over(min(now_ms + QUIET_MS, self._end_ms), now_ms)

    def hold(
        self,
        assignments: Assignments,
        client_id: str,
        now_ms: int,
        arrivals: Arrivals,
        *,
        is_expecting: bool,
    ) -> bool:
        """Keep back what a member that is alone has assigned; False if it need not be. At the
        deadline `take` gives it. `is_expecting` is whether an id is out that nobody has joined with
        yet, `client_id` the member's."""
        if not self._is_waiting(client_id, now_ms, arrivals, is_expecting):
            return False
        self._held = assignments
        return True

    def take(
        self, client_id: str, now_ms: int, arrivals: Arrivals, *, is_expecting: bool
    ) -> Assignments | None:
        """The assignments that were held back; None if there are none, or they must wait longer."""
        if self._held is None or self._is_waiting(client_id, now_ms, arrivals, is_expecting):
            return None
        held, self._held = self._held, None
        return held

    def _is_waiting(
        self, client_id: str, now_ms: int, arrivals: Arrivals, is_expecting: bool
    ) -> bool:
        due_ms = self._end_ms
        if now_ms < due_ms and not is_expecting and not self._is_looked_for(client_id, arrivals):
            connections = arrivals.connections()
            if connections > self._connections:
                self._connections, self._signs_end_ms = connections, now_ms + SIGNS_MS
            due_ms = min(self._signs_end_ms, self._end_ms)
        return not self._is_over(due_ms, now_ms)

    def _is_looked_for(self, client_id: str, arrivals: Arrivals) -> bool:
        """Whether another client than that of the member has looked for the group's coordinator."""
        searches = self._searches(arrivals)
        return len(searches) > OWN_SEARCHES or any(
            search.at_ms > self._first_ms or search.client_id != client_id for search in searches
        )

    def _searches(self, arrivals: Arrivals) -> list[Search]:
        """The searches for the group, from shortly before its first join on."""
        return arrivals.searches(self._group_id, self._first_ms - self._limit_ms)

    def _is_over(self, due_ms: int, now_ms: int) -> bool:
        over = due_ms <= now_ms
        self.deadline_ms = NEVER if over else due_ms
        return over
