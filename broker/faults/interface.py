"""The interface of the control port (docs/faults.md): paths and JSON in, a status and JSON out.

The table of paths is `Interface.PATHS`. Whoever runs a broker in the own process calls
`Interface.call` without the port.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, unquote

from broker import logs
from broker.faults.chance import faults_at_random, is_random, seeded
from broker.faults.clock import AHEAD_MAX_MS
from broker.faults.engine import FaultError
from broker.faults.events import EventRefused
from config.errors import nearest_of
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.faults.clock import MovableClock
    from broker.faults.conversations import Conversations
    from broker.faults.engine import Engine, Fault
    from broker.faults.events import Events
    from broker.faults.listings import Listings

    Answer = tuple[int, Any]
    Query = dict[str, str]
    Call = Callable[[list[str], Query, Any], Any]

OF_A_BROKER = ("/groups", "/topics", "/connections", "/clock")
"""Where the paths begin that a proxy does not have."""
OK, CREATED, BAD_REQUEST, NOT_FOUND, NOT_ALLOWED = 200, 201, 400, 404, 405


class Refused(ValueError):
    """A request that cannot be served; the text is one line."""

    def __init__(self, why: str, status: int = BAD_REQUEST) -> None:
        super().__init__(why)
        self.status = status


class Interface:
    """The faults, the clock and what was asked, as paths. Belongs to the loop."""

    PATHS: ClassVar[dict[str, str]] = {
        "GET /faults": "the faults that stand, with calls (what the filter let through) and fired",
        "POST /faults": "add one, or a list of them: all or none",
        "DELETE /faults": "remove all, and forget which never acted",
        "GET /faults/{id}": "one of them",
        "DELETE /faults/{id}": "remove one; the answer tells how often it acted",
        "GET /unfired": "faults that never acted, also those that were removed since",
        "GET /requests": "the last requests of clients, as text: ?client=, ?api=, ?after=NUMBER",
        "DELETE /requests": "forget these",
        "GET /topics": "all topics but the internal ones, with their partitions",
        "GET /topics/{name}": "each partition with its epoch, start and ends",
        "POST /topics/{name}/leader-epoch": "lead its partitions in a new epoch",
        "POST /topics/{name}/truncate": "the same, without a partition's records from an offset on",
        "GET /groups": "the groups with their types, states and members",
        "POST /groups/{id}/rebalance": "take the partitions of all members, and assign them anew",
        "GET /connections": "the open connections, each with its client id",
        "GET /clock": "the broker's time, and how far it was moved",
        "POST /clock": "let time pass: advance_ms; or set the wall clock: jump_ms",
    }

    def __init__(
        self, engine: Engine, conversations: Conversations, clock: MovableClock | None = None
    ) -> None:
        """Without a clock these are the faults of a proxy, which has no groups and topics either:
        their paths are refused."""
        self._engine = engine
        self._clock = clock
        self.events: Events
        self.listings: Listings
        """Both to be assigned when the broker is made."""
        self._conversations = conversations
        self._calls: Mapping[str, Call] = {
            "GET /": lambda parts, query, body: {"paths": self._paths()},
            "GET /faults": lambda parts, query, body: self._standing(),
            "POST /faults": lambda parts, query, body: self._add(body),
            "DELETE /faults": lambda parts, query, body: self._clear(),
            "GET /faults/{id}": lambda parts, query, body: self._found(parts[1]).shown(),
            "DELETE /faults/{id}": lambda parts, query, body: self._remove(parts[1]),
            "GET /unfired": lambda parts, query, body: self._unfired(),
            "GET /requests": lambda parts, query, body: self._requests(query),
            "DELETE /requests": lambda parts, query, body: self._forget(),
            "POST /groups/{id}/rebalance": lambda parts, query, body: self._rebalance(parts[1]),
            "GET /groups": lambda parts, query, body: {"groups": self.listings.groups()},
            "POST /topics/{name}/leader-epoch": lambda parts, query, body: self._elect(parts[1]),
            "POST /topics/{name}/truncate": lambda parts, query, body: self._cut(parts[1], body),
            "GET /topics": lambda parts, query, body: {"topics": self.listings.topics()},
            "GET /topics/{name}": lambda parts, query, body: self.listings.topic(parts[1]),
            "GET /connections": lambda parts, query, body: {
                "connections": self.listings.connections()
            },
            "GET /clock": lambda parts, query, body: self._time(),
            "POST /clock": lambda parts, query, body: self._move(body),
        }

    def call(self, method: str, target: str, body: bytes = b"") -> Answer:
        """`target` is a path with its query; `body` JSON, or empty. The status is that of HTTP, and
        an error's object has one line in `error`."""
        path, _, query = target.partition("?")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        try:
            pattern = self._pattern(method, parts)
            if pattern not in self._paths() and pattern != "GET /":
                raise Refused(f"a proxy does nothing by {method} {path}: only the broker can")
            call = self._calls[pattern]
            asked = {key: values[-1] for key, values in parse_qs(query).items()}
            answer = call(parts, asked, _decoded(body))
        except (EventRefused, FaultError, KafkaError, Refused) as error:
            return getattr(error, "status", BAD_REQUEST), {"error": str(error)}
        return (CREATED if method == "POST" else OK), answer

    def tell_unfired(self) -> None:
        """Say in the log which faults never acted."""
        for fault in self._engine.unfired():
            logs.warning("a fault never acted", fault=f"{fault.number}: {fault}")

    def _pattern(self, method: str, parts: list[str]) -> str:
        """The entry of the table that is meant. Raises Refused."""
        methods = []
        for known in self._calls:
            wanted, _, path = known.partition(" ")
            pattern = path.strip("/").split("/")
            if len(pattern) == len(parts) and all(
                one == part or one.startswith("{") for one, part in zip(pattern, parts, strict=True)
            ):
                if wanted == method:
                    return known
                methods.append(wanted)
        path = "/" + "/".join(parts)
        if methods:
            raise Refused(f"{path} takes {' and '.join(methods)}, not {method}", NOT_ALLOWED)
        nearest = nearest_of(path, {known.partition(" ")[2] for known in self._calls})
        hint = f"; did you mean {nearest}?" if nearest else "; GET / lists the paths"
        raise Refused(f"there is no {path}{hint}", NOT_FOUND)

    def _paths(self) -> dict[str, str]:
        """Those of the table that are served."""
        if self._clock is not None:
            return self.PATHS
        return {
            path: words
            for path, words in self.PATHS.items()
            if not path.partition(" ")[2].startswith(OF_A_BROKER)
        }

    def _standing(self) -> Any:
        return {"faults": [fault.shown() for fault in self._engine.standing()]}

    def _add(self, body: Any) -> Any:
        if isinstance(body, list):
            return {"faults": self._add_all(body)}
        if not isinstance(body, dict):
            raise Refused("a fault is a JSON object, as in docs/faults.md")
        if is_random(body):
            return self._add_random(body)
        fault = self._engine.add(body)
        logs.info("a fault was added", fault=f"{fault.number}: {fault}")
        return fault.shown()

    def _add_random(self, body: dict[str, Any]) -> Any:
        given = seeded(body, self._engine.new_seed())
        added = self._all_or_none(
            list(faults_at_random(given)), lambda one: self._engine.add(one, is_expected=False)
        )
        logs.warning("faults at random were added", seed=given["seed"], faults=len(added))
        return {**given, "faults": [fault.shown() for fault in added]}

    def _add_all(self, bodies: list[Any]) -> list[Any]:
        """Add them in their order; none, if one of them makes no fault."""
        return self._all_or_none(
            bodies, lambda one: self._add(one if isinstance(one, dict) else None)
        )

    def _all_or_none(self, bodies: list[Any], add: Callable[[Any], Any]) -> list[Any]:
        """What `add` says to each, or Refused for the first that it refuses."""
        before = {fault.number for fault in self._engine.standing()}
        added = []
        for number, body in enumerate(bodies, 1):
            try:
                added.append(add(body))
            except ValueError as error:
                new = {fault.number for fault in self._engine.standing()} - before
                self._engine.withdraw(new)
                raise Refused(f"fault {number} of {len(bodies)}: {error}") from error
        return added

    def _found(self, text: str) -> Fault:
        fault = self._engine.get(int(text)) if text.isdigit() else None
        if fault is None:
            raise Refused(f"there is no fault {text}", NOT_FOUND)
        return fault

    def _remove(self, text: str) -> Any:
        fault = self._found(text)
        self._engine.remove(fault.number)
        return fault.shown()

    def _clear(self) -> Any:
        self._engine.clear()
        return {"faults": []}

    def _unfired(self) -> Any:
        return {"faults": [fault.shown() for fault in self._engine.unfired()]}

    def _requests(self, query: Query) -> Any:
        after = query.get("after", "0")
        if not after.isdigit():
            raise Refused(f"after is the number of a request, not '{after}'")
        found = self._conversations.entries(
            client=query.get("client"), api=query.get("api"), after=int(after)
        )
        return {"requests": [entry._asdict() for entry in found]}

    def _forget(self) -> Any:
        self._conversations.clear()
        return {"requests": []}

    def _rebalance(self, group_id: str) -> Any:
        self.events.rebalance(group_id)
        return {"group": group_id}

    def _elect(self, name: str) -> Any:
        before = self.listings.topic(name)
        self.events.elect(name)
        return before

    def _cut(self, name: str, body: Any) -> Any:
        before = self.listings.topic(name)
        given = body if isinstance(body, dict) else {}
        partition, offset = given.get("partition", 0), given.get("offset")
        if (
            set(given) - {"partition", "offset"}
            or type(partition) is not int
            or (type(offset) is not int)
        ):
            raise Refused(
                'a truncation is {"partition": N, "offset": N}, and partition 0 if not said'
            )
        self.events.truncate(name, partition, offset)
        return before

    def _time(self) -> dict[str, Any]:
        clock = self._clock
        assert clock is not None
        return {
            "now_ms": clock.now_ms(),
            "advanced_ms": clock.ahead_ms,
            "jumped_ms": clock.jumped_ms,
        }

    def _move(self, body: Any) -> Any:
        clock = self._clock
        assert clock is not None
        if not isinstance(body, dict) or set(body) not in ({"advance_ms"}, {"jump_ms"}):
            raise Refused('a move is {"advance_ms": N}, or {"jump_ms": N}')
        ((key, ms),) = body.items()
        if type(ms) is not int or (ms < 0 and key == "advance_ms"):
            raise Refused(f"advance_ms is a whole number, at least 0, and jump_ms any: {ms!r}")
        if abs(clock.ahead_ms + clock.jumped_ms + ms) > AHEAD_MAX_MS:
            raise Refused(f"all moves together may be {AHEAD_MAX_MS} ms, which are ten years")
        if key == "jump_ms":
            clock.jump(ms)
            return self._time()
        calls = clock.advance(ms)
        logs.info("the clock was moved", ms=ms, timers=calls)
        return {**self._time(), "timers": calls}


def _decoded(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError as error:
        raise Refused(f"the body is not JSON: {error}") from error
