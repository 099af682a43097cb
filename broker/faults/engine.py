"""Which request meets which fault. Pure: no I/O, no clock, and chance comes from a seed.

A fault is described by a mapping, the one that the control port takes as JSON:

    {"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}

or, for what the broker asks of the disk, `{"disk": "failed_sync", "topic": "orders"}`.

Its *filter* (api, client, topic, partition, group) chooses calls, its *trigger* (on_call, times,
probability) chooses among these, and its one *action* is what the call meets.
"""

from __future__ import annotations

import random
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from config.errors import nearest_of
from protocol.errors import ErrorCode
from protocol.registry import APIS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Place = tuple[str, int | None]
    """A topic's name and a partition of it; None where a request names the topic alone."""

ALWAYS = "always"
ANY = "*"
FAULTS_MAX = 1_000
"""Faults at a time; another one is refused."""
DELAY_MAX_MS = 3_600_000

NAMES = {api.name: key for key, api in APIS.items()}
CODES = {code.name: code for code in ErrorCode}

OLD_NAMES = {
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "GROUP_LOAD_IN_PROGRESS": "COORDINATOR_LOAD_IN_PROGRESS",
    "GROUP_COORDINATOR_NOT_AVAILABLE": "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR_FOR_GROUP": "NOT_COORDINATOR",
}
"""Errors that had other names in older releases, which no distance of letters finds."""

WRITE, SYNC = "write to disk", "sync to disk"
"""What stands in place of an API's name for calls of the disk."""
FULL, FAILED_WRITE, FAILED_SYNC, SLOW = "full", "failed_write", "failed_sync", "slow"
DISKS = {FULL: WRITE, FAILED_WRITE: WRITE, FAILED_SYNC: SYNC, SLOW: SYNC}
"""The faults of the disk, and the calls that they are about."""
LASTING = (FULL, SLOW)
"""Those of them that act always unless they are told otherwise."""

FILTER_KEYS = ("api", "client", "topic", "partition", "group")
TRIGGER_KEYS = ("on_call", "times", "probability", "seed")
ACTIONS = ("error", "delay_ms", "close", "never_answer", "throttle_ms")
CLOSES = ("before", "after")
KEYS = ("disk", *FILTER_KEYS, *TRIGGER_KEYS, *ACTIONS)


class FaultError(ValueError):
    """A description that makes no fault; the text is one line for the one who wrote it."""


class Call(NamedTuple):
    """One request, as far as faults look at it."""

    api: str
    client: str
    """The client id; empty if it has none."""
    places: Sequence[Place]
    groups: Sequence[str] = ()
    """The ids of the groups that it names."""


class Hit(NamedTuple):
    """A fault that acts on a call, and the places of the call that it is about."""

    fault: Fault
    places: Sequence[Place]


class Fault:
    """One fault with its counters. Raises FaultError for a description that makes none."""

    def __init__(
        self, number: int, description: Mapping[str, Any], seed: int, *, is_expected: bool = True
    ) -> None:
        """`seed` is for a description that has a probability and no seed of its own.
        `is_expected` says that a test wants to hear of it if it never acts."""
        given = dict(description)
        for key in given:
            if key not in KEYS:
                raise FaultError(f"a fault has no '{key}'{hint(str(key), KEYS)}")
        self.number = number
        self.is_expected = is_expected
        self.disk: str | None = _disk(given)
        self.apis = _apis(given.get("api", ANY))
        if self.disk is not None:
            self.apis = frozenset({DISKS[self.disk]})
        self.client = _pattern(given, "client")
        self.topic = _pattern(given, "topic")
        self.group = _pattern(given, "group")
        self.partition: int | None = None
        if given.get("partition") is not None:
            self.partition = _whole(given, "partition", at_least=0)
        self.on_call = _whole(given, "on_call", at_least=1) if "on_call" in given else 1
        self.probability = _probability(given.get("probability"))
        lasting = self.disk in LASTING or self.probability is not None
        self.times = _times(given, lasting=lasting)
        self.seed = _whole(given, "seed", at_least=0) if "seed" in given else seed
        self._chance = random.Random(self.seed)
        if self.disk is None:
            self.action, self.value = _action(given)
        else:
            self.action, self.value = _action_of_disk(self.disk, given)
        self.calls = 0
        """Calls that its filter let through."""
        self.fired = 0

    @property
    def spent(self) -> bool:
        """Whether it has acted as often as it may."""
        return self.times is not None and self.fired >= self.times

    def takes(self, call: Call) -> Sequence[Place] | None:
        """The places of the call that it acts on, None if it does not act; the call is counted."""
        if self.spent or not self._is_about(call):
            return None
        places = call.places
        if self.topic is not None or self.partition is not None:
            places = [place for place in places if self._holds(place)]
            if not places:
                return None
        self.calls += 1
        if self.calls < self.on_call:
            return None
        if self.probability is not None and self._chance.random() >= self.probability:
            return None
        self.fired += 1
        return places

    def _is_about(self, call: Call) -> bool:
        if self.apis is None:
            if call.api in (WRITE, SYNC):
                return False
        elif call.api not in self.apis:
            return False
        if self.group is not None and not any(fnmatchcase(one, self.group) for one in call.groups):
            return False
        return self.client is None or fnmatchcase(call.client, self.client)

    def _holds(self, place: Place) -> bool:
        topic, partition = place
        if self.topic is not None and not fnmatchcase(topic, self.topic):
            return False
        return self.partition is None or partition in (None, self.partition)

    def shown(self) -> dict[str, Any]:
        """The fault as JSON has it, with its counters."""
        shown: dict[str, Any] = {"id": self.number}
        if self.disk is None:
            shown["api"] = _listed(self.apis)
        else:
            shown["disk"] = self.disk
        for key in ("client", "topic", "partition", "group", "probability"):
            if getattr(self, key) is not None:
                shown[key] = getattr(self, key)
        if self.probability is not None:
            shown["seed"] = self.seed
        shown |= {"on_call": self.on_call, "times": ALWAYS if self.times is None else self.times}
        value = self.value.name if isinstance(self.value, ErrorCode) else self.value
        return {**shown, self.action: value, "calls": self.calls, "fired": self.fired}

    def __str__(self) -> str:
        shown = self.shown()
        parts = [f"{key}={shown[key]}" for key in KEYS if key in shown and key != "api"]
        api = shown.get("api", [])
        return " ".join([api if isinstance(api, str) else ",".join(api), *parts]).lstrip()


class Engine:
    """The faults that stand, in the order in which they were added. A call meets the first that
    acts on it."""

    def __init__(self, new_seed: Callable[[], int], *, has_disk: bool = True) -> None:
        """`new_seed` gives the seed of a fault that has a probability and names none. A proxy has
        no disk, so that it refuses faults of one."""
        self._new_seed = new_seed
        self._has_disk = has_disk
        self._faults: dict[int, Fault] = {}
        self._last = 0
        self._removed_unfired: list[Fault] = []

    def new_seed(self) -> int:
        """A seed for those who name none."""
        return self._new_seed()

    def add(self, description: Mapping[str, Any], *, is_expected: bool = True) -> Fault:
        """Have this fault stand from now on. Raises FaultError."""
        if len(self._faults) >= FAULTS_MAX:
            raise FaultError(f"{FAULTS_MAX} faults stand, which is the most: remove some")
        fault = Fault(self._last + 1, description, self._new_seed(), is_expected=is_expected)
        if fault.disk is not None and not self._has_disk:
            raise FaultError(f"a proxy has no disk to be '{fault.disk}': only the broker has")
        self._last = fault.number
        self._faults[fault.number] = fault
        return fault

    def get(self, number: int) -> Fault | None:
        """The fault that stands under this number."""
        return self._faults.get(number)

    def remove(self, number: int) -> None:
        """Take this one away."""
        fault = self._faults.pop(number)
        if not fault.fired and fault.is_expected and len(self._removed_unfired) < FAULTS_MAX:
            self._removed_unfired.append(fault)

    def withdraw(self, numbers: Iterable[int]) -> None:
        """Take these away as if they had never been added."""
        for number in numbers:
            self._faults.pop(number, None)

    def clear(self) -> None:
        """Take all away, and forget which never acted."""
        self._faults.clear()
        self._removed_unfired.clear()

    def standing(self) -> list[Fault]:
        return list(self._faults.values())

    def unfired(self) -> list[Fault]:
        """Those that never acted, and stand or were removed since the last `clear`; none of those
        at random, whose chance it was."""
        waiting = [one for one in self._faults.values() if one.is_expected and not one.fired]
        return sorted([*self._removed_unfired, *waiting], key=lambda fault: fault.number)

    @property
    def has_faults(self) -> bool:
        """Whether any stands: without one a call is not worth a description."""
        return bool(self._faults)

    def stands(self, disk: str) -> bool:
        """Whether there is such a fault of the disk that goes on acting."""
        return any(one.disk == disk and not one.spent for one in list(self._faults.values()))

    def meet(self, call: Call) -> Hit | None:
        """The fault that this call meets, if any."""
        for fault in list(self._faults.values()):  # which another thread may add to
            places = fault.takes(call)
            if places is not None:
                return Hit(fault, places)
        return None


def hint(name: str, known: Iterable[str]) -> str:
    """The question after the nearest known name, to be added to a line; empty if none is near."""
    nearest = nearest_of(name, known)
    return f"; did you mean {nearest}?" if nearest else ""


def _apis(given: Any) -> frozenset[str] | None:
    """Kafka's names of APIs, None for all."""
    if given == ANY:
        return None
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not names:
        raise FaultError(f"api is a name, a list of names or '{ANY}', not {given!r}")
    for name in names:
        if name not in NAMES:
            raise FaultError(
                f"there is no API '{name}'{_hint_of_api(str(name))} (docs/apis.md lists them)"
            )
    return frozenset(names)


def _hint_of_api(name: str) -> str:
    folded = {known.lower(): known for known in NAMES}
    nearest = nearest_of(name.lower().replace("_", ""), folded)
    return f"; did you mean {folded[nearest]}?" if nearest else ""


def _listed(apis: frozenset[str] | None) -> str | list[str]:
    if apis is None:
        return ANY
    return next(iter(apis)) if len(apis) == 1 else sorted(apis)


def _pattern(given: Mapping[str, Any], key: str) -> str | None:
    """A name, or a shell's pattern of names."""
    value = given.get(key)
    if value is None or isinstance(value, str):
        return value
    raise FaultError(f"{key} is a name or a pattern such as 'orders-*', not {value!r}")


def _whole(given: Mapping[str, Any], key: str, *, at_least: int, at_most: int = 2**63) -> int:
    value = given[key]
    if type(value) is int and at_least <= value <= at_most:
        return value
    bound = f"at least {at_least}" if at_most == 2**63 else f"from {at_least} to {at_most}"
    raise FaultError(f"{key} is a whole number, {bound}, not {value!r}")


def _probability(given: Any) -> float | None:
    if given is None:
        return None
    if type(given) in (int, float) and 0 < given <= 1:
        return float(given)
    raise FaultError(f"probability is a number above 0 and at most 1, not {given!r}")


def _times(given: Mapping[str, Any], *, lasting: bool) -> int | None:
    """None is without an end, which is what chance has if nothing else is said."""
    times = given.get("times", ALWAYS if lasting else 1)
    if times == ALWAYS:
        return None
    if type(times) is int and times >= 1:
        return times
    raise FaultError(f"times is a whole number, at least 1, or '{ALWAYS}', not {times!r}")


def _action(given: Mapping[str, Any]) -> tuple[str, Any]:
    found = [key for key in ACTIONS if given.get(key) not in (None, False)]
    if len(found) != 1:
        wanted = ", ".join(ACTIONS)
        raise FaultError(f"a fault has one of {wanted}; found {', '.join(found) or 'none'}")
    key = found[0]
    if key == "error":
        return key, _error(given[key])
    if key == "close":
        if given[key] not in CLOSES:
            raise FaultError(f"close is 'before' or 'after', not {given[key]!r}")
        return key, given[key]
    if key == "never_answer":
        if given[key] is not True:
            raise FaultError(f"never_answer is true, not {given[key]!r}")
        return key, True
    return key, _whole(given, key, at_least=1, at_most=DELAY_MAX_MS)


def _disk(given: Mapping[str, Any]) -> str | None:
    """The fault of the disk that is meant, if it is one."""
    disk = given.get("disk")
    if disk is None:
        return None
    if disk not in DISKS:
        raise FaultError(f"disk is one of {', '.join(DISKS)}, not {disk!r}{hint(str(disk), DISKS)}")
    for key in ("api", "client", "group"):
        if key in given:
            raise FaultError(f"a fault of the disk has no {key}")
    return str(disk)


def _action_of_disk(disk: str, given: Mapping[str, Any]) -> tuple[str, Any]:
    wanted = ("delay_ms",) if disk == SLOW else ()
    found = tuple(key for key in ACTIONS if given.get(key) not in (None, False))
    if found != wanted:
        what = "delay_ms and no other action" if wanted else "no action of requests"
        raise FaultError(f"a disk that is '{disk}' has {what}; found {', '.join(found) or 'none'}")
    if disk == SLOW:
        return "delay_ms", _whole(given, "delay_ms", at_least=1, at_most=DELAY_MAX_MS)
    return "disk", disk


def _error(name: Any) -> ErrorCode:
    """Kafka's name of an error; NONE is none."""
    if name in CODES and CODES[name] is not ErrorCode.NONE:
        return CODES[name]
    nearest = OLD_NAMES.get(str(name).upper()) or nearest_of(str(name).upper(), CODES)
    nearest_one = f"; did you mean {nearest}?" if nearest else ""
    raise FaultError(f"there is no error '{name}'{nearest_one}")
