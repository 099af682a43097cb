"""The options of `format("triglot")` for reading.

Those that Spark's own Kafka connector has too have its names, values and meanings; names count in
any case. What is wrong with them is said in one line before anything is connected to.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from pipeline.errors import NoSuchTopic, WrongUse
from pipeline.reading.security_options import asks_for_plaintext, security_of
from pipeline.reading.source import Bound

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from client.security import ClientSecurity
    from pipeline.reading.source import Source

SHAPES = ("records", "batches", "ranges")
FETCH_BYTES = 8 << 20
FETCH_BYTES_MIN, FETCH_BYTES_MAX = 1024, 1 << 30
TIMEOUT_S = 30.0
OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1

NAMES = (
    "kafka.bootstrap.servers",
    "commandConfig",
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "shape",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "onGap",
    "onCorrupt",
    "includeHeaders",
    "kafka.isolation.level",
    "kafkaConsumer.pollTimeoutMs",
    "commitGroup",
    "fetchBytes",
    "pushFilters",
)
"""Every option that does something here."""

OF_EVERY_CLIENT = tuple(
    f"kafka.{name}"
    for name in (
        "client.dns.lookup",
        "client.id",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    )
)
"""Tuning that consumers and producers of Kafka have: taken here and for writing, without effect."""

WITHOUT_MEANING = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafka.allow.auto.create.topics",
    "kafka.auto.commit.interval.ms",
    "kafka.check.crcs",
    "kafka.client.rack",
    "kafka.default.api.timeout.ms",
    "kafka.exclude.internal.topics",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.group.id",
    "kafka.group.instance.id",
    "kafka.group.protocol",
    "kafka.heartbeat.interval.ms",
    "kafka.max.partition.fetch.bytes",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.partition.assignment.strategy",
    "kafka.session.timeout.ms",
    *OF_EVERY_CLIENT,
)
"""Tuning of a consumer or a group that is not there: taken, so that a query for the connector runs
unchanged, and without effect. `fetchBytes` is what there is to tune."""

REFUSED = {
    "topic": "it is for writing; a reader has subscribe",
    "provider": "Spark keeps no options for a table of this format: CREATE TEMPORARY VIEW has them",
    "minoffsetspertrigger": "it is not supported: use a longer trigger interval",
    "maxtriggerdelay": "it is not supported: use a longer trigger interval",
    "kafka.auto.offset.reset": "it is not supported: use startingOffsets",
    "kafka.enable.auto.commit": "it is not supported: use commitGroup",
    "kafka.key.deserializer": "it is not supported: keys are binary, to be cast by the query",
    "kafka.value.deserializer": "it is not supported: values are binary, to be cast by the query",
    "kafka.interceptor.classes": "it is not supported",
}
"""What the connector has and this has not, or what it refuses itself, and what to do instead."""

OTHERWISE_CALLED = {
    "topics": "subscribe",
    "bootstrap.servers": "kafka.bootstrap.servers",
    "servers": "kafka.bootstrap.servers",
    "isolation.level": "kafka.isolation.level",
    "isolationlevel": "kafka.isolation.level",
    "headers": "includeHeaders",
    "groupid": "commitGroup",
    "group.id": "commitGroup",
}

SELECTIONS = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True)
class SourceOptions:
    """The options of a source: what to read, its bounds, and how. Picklable. `parse` makes it."""

    servers: str | None = None
    """Or a data directory, `path`."""
    security: ClientSecurity | None = None
    """Of the client, as the file `commandConfig` says. Each task reads it where it runs."""
    path: str | None = None
    topics: tuple[str, ...] = ()
    """Or `pattern`, or `assigned`."""
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: Bound = field(default_factory=lambda: Bound("startingOffsets", EARLIEST))
    ending: Bound = field(default_factory=lambda: Bound("endingOffsets", LATEST))
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    max_partitions: int | None = None
    max_records_per_partition: int | None = None
    on_gap: str = "fail"
    on_corrupt: str = "fail"
    include_headers: bool = False
    committed_only: bool = False
    shape: str = "records"
    commit_group: str | None = None
    fetch_bytes: int = FETCH_BYTES
    push_filters: bool = False
    timeout_s: float = TIMEOUT_S

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
        """Raises WrongUse. With `streaming` None nothing is refused that only a stream, or only a
        bounded read, must not have."""
        return _Parser(options, streaming).parsed()

    def source(self, *, patient: bool = False) -> Source:
        """The source, not connected yet. Raises WrongUse for a path without data.

        A `patient` one waits for a broker that does not answer, as `Cluster` says.
        """
        if self.path is not None:
            from pipeline.reading.data_directory import DataDirectory

            return DataDirectory(self.path)
        assert self.servers is not None
        return Cluster(
            self.servers, timeout_s=self.timeout_s, patient=patient, security=self.security
        )

    def select(
        self, source: Source, known: Collection[TopicPartition] | None = None
    ) -> list[TopicPartition]:
        """The partitions that are to be read, in order. Raises NoSuchTopic for one that is named
        and not there, unless it is among, or is a topic of, those already `known`: it was deleted.

        With onGap=skip what is read already goes on without any: what was deleted before is not
        among the known ones any more.
        """
        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            matching = [name for name in source.topics() if matches(name)]
            return sorted(source.partitions(matching)) if matching else []
        names = self.topics or tuple(sorted({partition.topic for partition in self.assigned}))
        if known is not None and self.on_gap == "skip":
            known = self.assigned or [TopicPartition(name, 0) for name in names]
        known = known or ()
        found = set(_partitions(source, names, {partition.topic for partition in known}))
        if not self.assigned:
            return sorted(found)
        for partition in self.assigned:
            if partition not in found and partition not in known:
                raise NoSuchTopic(f"assign names {partition}, but there is no such partition")
        return sorted(found.intersection(self.assigned))


def _partitions(
    source: Source, names: Sequence[str], known: Collection[str]
) -> list[TopicPartition]:
    """The partitions of these topics; of those that are `known`, one may not be there any more."""
    try:
        return source.partitions(names)
    except NoSuchTopic:
        if not known:
            raise
    found: list[TopicPartition] = []
    for name in names:
        try:
            found += source.partitions([name])
        except NoSuchTopic:
            if name not in known:
                raise
    return found


class _Parser:
    """Takes one option after the other; `parsed` is the only way in."""

    def __init__(self, options: Mapping[str, str], streaming: bool | None) -> None:
        self.values = {name.lower(): str(value).strip() for name, value in options.items()}
        self.streaming = streaming

    def parsed(self) -> SourceOptions:
        self._refuse_strangers()
        servers, path = self._text("kafka.bootstrap.servers"), self._text("path")
        if servers is None and path is None:
            raise WrongUse("option kafka.bootstrap.servers, or path of a data directory, is wanted")
        if servers is not None and path is not None:
            raise WrongUse("options kafka.bootstrap.servers and path exclude each other")
        selected = [name for name in SELECTIONS if name.lower() in self.values]
        if len(selected) != 1:
            raise WrongUse(
                "one of the options subscribe, subscribePattern and assign is wanted, found "
                + (" and ".join(selected) or "none")
            )
        isolation = self._choice(
            "kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted"
        )
        timeout_ms = self._number("kafkaConsumer.pollTimeoutMs", largest=PARTITION_MAX)
        starting, ending = self._starting(), self._ending()
        _refuse_backwards(starting, ending)
        fewest = self._number("minPartitions", largest=PARTITION_MAX)
        most = self._number("maxPartitions", largest=PARTITION_MAX)
        if fewest is not None and most is not None and fewest > most:
            raise WrongUse(f"option minPartitions is {fewest}, and maxPartitions only {most}")
        commit_group = self._text("commitGroup")
        if commit_group is not None and path is not None:
            raise WrongUse("option commitGroup needs a broker, and path names a data directory")
        return SourceOptions(
            servers=servers,
            security=self._security(path),
            path=path,
            topics=self._topics(),
            pattern=self._pattern(),
            assigned=self._assigned(),
            starting=starting,
            ending=ending,
            max_offsets_per_trigger=self._number("maxOffsetsPerTrigger"),
            min_partitions=fewest,
            max_partitions=most,
            max_records_per_partition=self._number("maxRecordsPerPartition"),
            on_gap=self._on_gap(),
            on_corrupt=self._choice("onCorrupt", ("fail", "skip"), "fail"),
            include_headers=self._flag("includeHeaders", False),
            committed_only=isolation == "read_committed",
            shape=self._choice("shape", SHAPES, "records"),
            commit_group=commit_group,
            fetch_bytes=self._number("fetchBytes", FETCH_BYTES_MIN, FETCH_BYTES_MAX) or FETCH_BYTES,
            push_filters=self._flag("pushFilters", False),
            timeout_s=TIMEOUT_S if timeout_ms is None else timeout_ms / 1000,
        )

    def _refuse_strangers(self) -> None:
        known = {name.lower(): name for name in (*NAMES, *WITHOUT_MEANING)}
        for name in self.values:
            if name in known:
                continue
            if name in REFUSED:
                raise WrongUse(f"option {name}: {REFUSED[name]}")
            if asks_for_plaintext(name, self.values[name]):
                continue
            nearest = OTHERWISE_CALLED.get(name)
            if nearest is None:
                close = get_close_matches(name, [one.lower() for one in NAMES], n=1)
                nearest = known[close[0]] if close else None
            hint = f"did you mean {nearest}?" if nearest else f"known are {', '.join(NAMES)}"
            raise WrongUse(f"option {name} is not known: {hint}")

    # What to read

    def _topics(self) -> tuple[str, ...]:
        text = self.values.get("subscribe")
        if text is None:
            return ()
        names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
        if not names:
            raise WrongUse(
                f"option subscribe is {text!r}, wanted are names of topics: orders,items"
            )
        return tuple(names)

    def _pattern(self) -> str | None:
        text = self.values.get("subscribepattern")
        if text is None:
            return None
        try:
            re.compile(text)
        except re.error as error:
            raise WrongUse(
                f"option subscribePattern is {text!r}, no regular expression: {error}"
            ) from None
        if not text:
            raise WrongUse("option subscribePattern is empty, wanted is one like orders-.*")
        return text

    def _assigned(self) -> tuple[TopicPartition, ...]:
        if "assign" not in self.values:
            return ()
        wanted = 'JSON like {"orders":[0,1]}'
        found: set[TopicPartition] = set()
        for topic, numbers in self._json("assign", wanted).items():
            if not isinstance(numbers, list) or not all(map(_is_partition, numbers)):
                raise WrongUse(f"option assign: topic {topic} has {numbers!r}, wanted is {wanted}")
            found.update(TopicPartition(topic, number) for number in numbers)
        if not found:
            raise WrongUse(f"option assign names no partition, wanted is {wanted}")
        return tuple(sorted(found))

    def _security(self, path: str | None) -> ClientSecurity | None:
        file = self._text("commandConfig")
        if file is not None and path is not None:
            raise WrongUse("option commandConfig is for brokers, and path names a data directory")
        return security_of(file)

    # From where to where

    def _starting(self) -> Bound:
        at_end = self._choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
        by_time = self._by_time("starting", or_latest=at_end == "latest")
        if by_time is not None:
            return by_time
        bound = self._by_offset("startingOffsets", LATEST if self.streaming else EARLIEST)
        if self.streaming is False and LATEST in bound.values:
            raise WrongUse(
                "option startingOffsets: a bounded read cannot begin at the latest offset, for "
                "there is nothing behind it"
            )
        return bound

    def _ending(self) -> Bound:
        if self.streaming and self.values.get("shape") != "ranges":
            for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
                if name.lower() in self.values:
                    raise WrongUse(f"option {name}: a stream has no end; it is for bounded reads")
        by_time = self._by_time("ending")
        if by_time is not None:
            return by_time
        bound = self._by_offset("endingOffsets", LATEST)
        if EARLIEST in bound.values:
            raise WrongUse(
                "option endingOffsets: a bounded read cannot end at the earliest offset, for there "
                "is nothing before it"
            )
        return bound

    def _by_time(self, which: str, *, or_latest: bool = False) -> Bound | None:
        """The first of the two options with times that is there: it takes precedence."""
        name = f"{which}Timestamp"
        time_ms = self._number(name, smallest=0)
        if time_ms is not None:
            return Bound(name, time_ms, is_time=True, or_latest=or_latest)
        name = f"{which}OffsetsByTimestamp"
        if name.lower() not in self.values:
            return None
        each = self._numbers(name, 0, 'JSON like {"orders":{"0":1000}} with times in ms')
        return Bound(name, each=each, is_time=True, or_latest=or_latest)

    def _by_offset(self, name: str, default: int) -> Bound:
        text = self.values.get(name.lower())
        if text is None:
            return Bound(name, default)
        if text.lower() in ("earliest", "latest"):
            return Bound(name, EARLIEST if text.lower() == "earliest" else LATEST)
        wanted = (
            'earliest, latest, or JSON like {"orders":{"0":23,"1":-1}} in which -1 is the latest '
            "and -2 the earliest offset"
        )
        return Bound(name, each=self._numbers(name, EARLIEST, wanted))

    def _numbers(self, name: str, smallest: int, wanted: str) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for topic, partitions in self._json(name, wanted).items():
            if not isinstance(partitions, dict):
                raise WrongUse(f"option {name}: topic {topic} has {partitions!r}, wanted {wanted}")
            for number, value in partitions.items():
                if not _is_partition_text(number):
                    raise WrongUse(f"option {name}: {topic} has no partition {number!r}")
                if type(value) is not int or not smallest <= value <= OFFSET_MAX:
                    raise WrongUse(
                        f"option {name}: {topic}-{number} has {value!r}, wanted {wanted}"
                    )
                found[TopicPartition(topic, int(number))] = value
        if not found:
            raise WrongUse(f"option {name} names no partition, wanted is {wanted}")
        return found

    def _json(self, name: str, wanted: str) -> dict[str, object]:
        text = self.values[name.lower()]
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise WrongUse(f"option {name} is {text!r}, wanted is {wanted}")
        return value

    # Single values

    def _on_gap(self) -> str:
        fails = self._flag("failOnDataLoss", True)
        on_gap = self._choice("onGap", ("fail", "skip"), "fail" if fails else "skip")
        if "failondataloss" in self.values and fails != (on_gap == "fail"):
            raise WrongUse(
                f"options failOnDataLoss={str(fails).lower()} and onGap={on_gap} contradict each "
                "other: give one of them"
            )
        return on_gap

    def _text(self, name: str) -> str | None:
        text = self.values.get(name.lower())
        if text is not None and not text:
            raise WrongUse(f"option {name} is empty")
        return text

    def _choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = self.values.get(name.lower(), default)
        if text.lower() not in choices:
            raise WrongUse(f"option {name} is {text!r}, wanted is {' or '.join(choices)}")
        return text.lower()

    def _flag(self, name: str, default: bool) -> bool:
        return self._choice(name, ("true", "false"), str(default).lower()) == "true"

    def _number(self, name: str, smallest: int = 1, largest: int = OFFSET_MAX) -> int | None:
        text = self.values.get(name.lower())
        if text is None:
            return None
        # No number that is longer than the largest is ever made of what was given.
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(OFFSET_MAX))):
            raise WrongUse(f"option {name} is {text[:40]!r}, wanted is a whole number")
        if not smallest <= int(text) <= largest:
            raise WrongUse(f"option {name} is {text}, wanted is {smallest} to {largest}")
        return int(text)


def _refuse_backwards(starting: Bound, ending: Bound) -> None:
    if starting.is_time and ending.is_time and not starting.each and not ending.each:
        since, until = starting.everywhere, ending.everywhere
        if since > until:
            raise WrongUse(
                f"option {starting.option} is {since}, and {ending.option} {until}: nothing is "
                "between them"
            )


def _is_partition_text(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and _is_partition(int(text))


def _is_partition(number: object) -> bool:
    return type(number) is int and 0 <= number <= PARTITION_MAX
