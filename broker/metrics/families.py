"""Everything that is counted, in the order of the page.

    triglot_codec_calls_total{codec="gzip",call="compress"} 0

That this is 0 while gzip batches come in is the point of KIP-31: nothing is compressed again.
Counters are kept where things happen and collected here when somebody asks, so that counting costs
next to nothing on the way of a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker._version import VERSION
from broker.metrics.groups import group_families
from broker.metrics.partitions import partition_families, removal_families
from broker.metrics.process import process_families
from broker.metrics.requests import (
    client_families,
    refusal_families,
    request_families,
    sync_families,
)
from broker.metrics.text import Family
from protocol.records import transcode
from protocol.records.compression import CALLS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from broker.background.cleaner import Cleaner
    from broker.background.deletion_clock import DeletionClock
    from broker.background.log_starts import LogStarts
    from broker.background.retention_wait import RetentionWait
    from broker.background.scrubber import Scrubber
    from broker.census import Census
    from broker.coordinator.group_coordinator import GroupCoordinator
    from broker.coordinator.offset_coordinator import OffsetCoordinator
    from broker.fetching.conversion import Conversions
    from broker.metadata.client_metrics import ClientMetrics
    from broker.metadata.client_quotas import ClientQuotas
    from broker.metrics.text import Row
    from broker.neighbours import GroupsElsewhere, Neighbours
    from broker.network.backlog import Backlog
    from broker.network.connection_counts import ConnectionCounts
    from broker.network.connections import Connections
    from broker.network.descriptors import Descriptors
    from broker.network.secured import SecureListeners
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topics import Topics
    from broker.producing.appends import Appends
    from broker.producing.group_commit import GroupCommit
    from broker.request_times import RequestTimes
    from broker.workers import Worker
    from protocol.connection import Routes
    from storage.data_dir import DataDirectory

Counters = tuple[str, str, str, "Iterable[Row]"]
"""A family of few rows: name, kind, meaning, and rows of labels (or "") with a value."""


class Sources(NamedTuple):
    """The parts of the broker whose counters are shown."""

    appends: Appends
    backlog: Backlog
    census: Census
    cleaner: Cleaner
    client_metrics: Callable[[], ClientMetrics]
    connection_counts: ConnectionCounts
    connections: Connections
    controller_routes: Routes
    conversions: Conversions
    deletion_clock: DeletionClock
    descriptors: Descriptors
    directory: DataDirectory
    disk: DiskState
    group_commit: GroupCommit
    groups: GroupCoordinator
    log_starts: LogStarts
    loop: asyncio.AbstractEventLoop
    neighbours: Neighbours | None
    now_ms: Callable[[], int]
    offsets: OffsetCoordinator
    quotas: ClientQuotas
    readers: Worker
    request_times: RequestTimes
    retention_wait: Callable[[], RetentionWait]
    routes: Routes
    scrubber: Scrubber
    secure_listeners: SecureListeners
    topics: Topics

    @property
    def groups_elsewhere(self) -> GroupsElsewhere | None:
        """Those that other processes coordinate, where there are some."""
        return None if self.neighbours is None else self.neighbours.groups


def families(sources: Sources) -> Iterator[Family]:
    """Every family there is; rows that are many are worked out when they are asked for."""
    for name, kind, meaning, rows in _counters(sources):
        yield Family(name, kind, meaning, rows)
    yield from request_families(sources.request_times)
    yield from sync_families(sources.group_commit)
    yield from client_families(sources.connections)
    yield from refusal_families(sources.appends)
    yield from partition_families(sources.topics)
    yield from removal_families(sources.log_starts)
    yield from group_families(
        sources.groups, sources.topics, sources.now_ms, sources.groups_elsewhere
    )
    yield from process_families()


def _request_rows(sources: Sources) -> list[tuple[str, int]]:
    """Requests on all listeners, by API and version."""
    counts: dict[str, int] = {}
    for route in (*sources.routes.used(), *sources.controller_routes.used()):
        labels = f'{{api="{route.api.name}",version="{route.version}"}}'
        counts[labels] = counts.get(labels, 0) + route.requests
    return list(counts.items())


def _counters(sources: Sources) -> Iterator[Counters]:
    about = f'{{version="{VERSION}",record_loops="{transcode.IMPLEMENTATION}"}}'
    yield "info", "gauge", "What runs here.", [(about, 1)]
    yield "connections", "gauge", "Open connections.", [("", len(sources.connections))]
    come = "Connections that have come, also those that were closed at once."
    yield "connection_creation_total", "counter", come, [("", sources.connection_counts.opened())]
    held = "Memory held for clients that do not take their answers."
    yield "connections_backlog_bytes", "gauge", held, [("", sources.backlog.bytes)]
    topics = list(sources.topics)
    yield "topics", "gauge", "Topics that exist.", [("", len(topics))]
    partitions = sum(not one.led_elsewhere for topic in topics for one in topic.partitions)
    yield "partitions", "gauge", "Partitions that are led here.", [("", partitions)]
    yield (
        "requests_total",
        "counter",
        "Requests by API and version: old versions are old clients.",
        _request_rows(sources),
    )
    yield (
        "codec_calls_total",
        "counter",
        "Payloads compressed and decompressed, by codec.",
        [
            (f'{{codec="{codec}",call="{call}"}}', count)
            for call, by_codec in CALLS.items()
            for codec, count in by_codec.items()
        ],
    )
    yield (
        "sets_rebuilt_total",
        "counter",
        "Produced sets that could not be stored in the bytes they came in.",
        [("", sources.appends.rebuilt)],
    )
    yield from _authentication_families(sources)
    yield from _throttling_families(sources)
    yield from _disk_families(sources)
    yield from _waiting_families(sources)
    yield from _cleaner_families(sources)
    yield from _conversion_families(sources)
    yield from _group_families(sources)
    yield from _client_metrics_families(sources)


def _authentication_families(sources: Sources) -> Iterator[Counters]:
    """Authentications by listener and mechanism, named as in Kafka's socket-server-metrics."""
    outcomes = sorted(sources.secure_listeners.outcomes.items())
    for what, succeeded, again, meaning in (
        ("successful_authentication", True, False, "Connections whose client has authenticated."),
        ("failed_authentication", False, False, "Connections whose client was not let in."),
        ("successful_reauthentication", True, True, "Sessions that were prolonged (KIP-368)."),
        ("failed_reauthentication", False, True, "Sessions that ended by a refusal."),
    ):
        rows = [
            (f'{{listener="{one.listener}",mechanism="{one.mechanism}"}}', count)
            for one, count in outcomes
            if (one.succeeded, one.again) == (succeeded, again)
        ]
        yield f"{what}_total", "counter", meaning, rows


def _throttling_families(sources: Sources) -> Iterator[Counters]:
    """Who had to wait for a quota, or for its turn to connect."""
    for label, noun, by_place in (
        ("quota", "throttled", sources.quotas.throttled),
        ("listener", "connection_accept_throttled", sources.connections.throttled),
    ):
        of = "Requests, or connections, above a quota, by its key."
        waits = "The waits of these."
        if label == "listener":
            of = "Connections that waited for max.connection.creation.rate, by listener."
        counted = [(f'{{{label}="{place}"}}', one) for place, one in by_place.items()]
        yield f"{noun}_total", "counter", of, [(at, one.count) for at, one in counted]
        name = noun.replace("throttled", "throttle_time_seconds_total")
        yield name, "counter", waits, [(at, one.total_ms / 1000) for at, one in counted]


def _disk_families(sources: Sources) -> Iterator[Counters]:
    """Room, and logs that the disk has failed."""
    disk = sources.disk
    full = "1 while records are refused because the disk is full."
    yield "disk_full", "gauge", full, [("", int(disk.full))]
    free = "What may still be written to the data directory, without the reserve."
    yield "disk_free_bytes", "gauge", free, [("", disk.free_bytes)]
    jumped = "How far the clock is ahead of the time by which records are deleted for their age."
    yield "clock_jump_seconds", "gauge", jumped, [("", sources.deletion_clock.jump_ms / 1000)]
    failed = [key for key, log in sources.directory.logs.items() if log.failed is not None]
    stopped = "Logs that take no more records until a restart."
    yield "failed_logs", "gauge", stopped, [("", len(failed))]
    rows = [(f'{{topic="{topic}",partition="{index}"}}', 1) for topic, index in failed]
    yield "failed_log", "gauge", "Each of them.", rows
    short = "1 while new connections wait because no file descriptor is left."
    yield "file_descriptors_short", "gauge", short, [("", int(sources.descriptors.short))]
    scrubber = sources.scrubber
    read = "Bytes of sealed segments read again and compared with their checksums."
    yield "scrubbed_bytes_total", "counter", read, [("", scrubber.bytes_read)]
    damaged = "Sealed segments that were found damaged by that."
    yield "damaged_segments", "gauge", damaged, [("", scrubber.damaged)]


def _waiting_families(sources: Sources) -> Iterator[Counters]:
    """Records that wait for groups before retention drops them."""
    wait = sources.retention_wait()
    records, byte_size = wait.totals()
    topics = [(f'{{topic="{name}"}}', held) for name, held in wait.by_topic()]
    many = "Records that retention holds back for groups, by topic (those that hold back most)."
    rows = [(at, held.records) for at, held in topics]
    yield "retention_waiting_topic_records", "gauge", many, rows
    rows = [(at, held.byte_size) for at, held in topics]
    yield "retention_waiting_topic_bytes", "gauge", "Bytes of their batches.", rows
    yield "retention_waiting_records", "gauge", "The same of all topics.", [("", records)]
    yield "retention_waiting_bytes", "gauge", "Bytes of their batches.", [("", byte_size)]
    lost = "Records dropped above a bound of the wait before a group had committed them."
    yield "retention_wait_lost_records_total", "counter", lost, [("", wait.lost_records)]


def _cleaner_families(sources: Sources) -> Iterator[Counters]:
    """Compaction."""
    done = sources.cleaner.counts
    for name, meaning, value in (
        ("cleanings_total", "Logs that were compacted.", done.cleanings),
        ("cleaning_failures_total", "Compactions that were given up.", done.failures),
        ("cleaning_read_bytes_total", "Bytes of segments that were replaced.", done.bytes_read),
        ("cleaning_written_bytes_total", "Bytes of what replaced them.", done.bytes_written),
        ("cleaning_read_records_total", "Records in those segments.", done.records_read),
        ("cleaning_kept_records_total", "Records that stayed.", done.records_kept),
    ):
        yield name, "counter", meaning, [("", value)]
    ratio = "Dirty share in percent of the dirtiest log that could be compacted at the last look."
    yield "cleaning_dirtiest_percent", "gauge", ratio, [("", round(100 * done.dirtiest_ratio))]
    keys = "Memory of the last compaction's map of keys."
    yield "cleaning_last_map_bytes", "gauge", keys, [("", done.last_map_bytes)]
    took = "How long the last compaction took."
    yield "cleaning_last_seconds", "gauge", took, [("", round(done.last_duration_s, 3))]


def _group_families(sources: Sources) -> Iterator[Counters]:
    """Groups and their offsets."""
    groups, offsets = sources.groups, sources.offsets
    shards = list(groups.loaded_shards())
    known: dict[str, int] = {}
    for shard in shards:
        for group in shard.state.groups.values():
            known[group.kind] = known.get(group.kind, 0) + 1
    rows = [(f'{{type="{kind}"}}', count) for kind, count in known.items()]
    yield "groups", "gauge", "Groups with members or a record of their own, by type.", rows
    held = "Committed offsets in memory."
    yield "offsets", "gauge", held, [("", sum(len(shard.state.offsets) for shard in shards))]
    yield "offset_commits_total", "counter", "Commits that were stored.", [("", offsets.commits)]
    gone = "Offsets that were removed because their time was over."
    yield "offsets_expired_total", "counter", gone, [("", offsets.expired)]
    torn = "Cuts by which recovery removed commits that a crash had torn."
    yield "offsets_torn_commits_total", "counter", torn, [("", groups.torn_commits)]
    left = "Records of __consumer_offsets that could not be loaded."
    yield "offsets_skipped_records_total", "counter", left, [("", groups.loads.skipped)]


def _client_metrics_families(sources: Sources) -> Iterator[Counters]:
    """Metrics that clients push."""
    clients = sources.client_metrics()
    remembered = "Clients that have asked which metrics to push."
    yield "client_metrics_clients", "gauge", remembered, [("", len(clients))]
    kept = "Payloads of the last pushes, compressed; the numbers are at /client-metrics."
    yield "client_metrics_bytes", "gauge", kept, [("", clients.kept_bytes)]
    taken = "Pushes that were taken."
    yield "client_metrics_pushes_total", "counter", taken, [("", clients.pushes)]
    refused = "Pushes and questions that were refused."
    yield "client_metrics_refusals_total", "counter", refused, [("", clients.refusals)]


def _conversion_families(sources: Sources) -> Iterator[Counters]:
    """Conversions for readers of older formats."""
    made = sources.conversions
    for name, meaning, value in (
        (
            "converted_entries_total",
            "Stored batches, wrappers and runs of plain messages converted for older readers.",
            made.converted_entries,
        ),
        ("converted_records_total", "Records in them.", made.converted_records),
        ("converted_bytes_total", "Bytes made of them.", made.converted_bytes),
        (
            "conversion_failures_total",
            "Stored entries that could not be converted.",
            made.failures,
        ),
        (
            "conversion_cache_hits_total",
            "Conversions that were found in the cache.",
            made.hits,
        ),
        (
            "conversion_joins_total",
            "Fetches that waited for a conversion begun for another one.",
            made.joined,
        ),
        (
            "conversion_cache_misses_total",
            "Conversions that were looked for in the cache and not found.",
            made.misses,
        ),
    ):
        yield name, "counter", meaning, [("", value)]
    yield (
        "conversion_cache_bytes",
        "gauge",
        "Memory that the cache of conversions takes.",
        [("", made.cached_bytes)],
    )
