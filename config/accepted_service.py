"""Keys of Kafka without effect here: how its own threads, buffers and plug-ins are set up."""

from __future__ import annotations

from config.declare import Key, accepted, at_least, between
from config.kinds import (
    LONG_MAX,
    boolean,
    class_name,
    double,
    int16,
    int32,
    int64,
    names,
    string,
)

SERVICE_KEYS: list[Key] = [
    *accepted(
        "share groups are not served",
        (
            ("group.share.delivery.count.limit", int32, 5, between(2, 10)),
            ("group.share.enable", boolean, False),
            ("group.share.heartbeat.interval.ms", int32, 5000, at_least(1)),
            ("group.share.max.groups", int16, 10, between(1, 100)),
            ("group.share.max.heartbeat.interval.ms", int32, 15_000, at_least(1)),
            ("group.share.max.record.lock.duration.ms", int32, 60_000, between(30000, 3600000)),
            ("group.share.max.session.timeout.ms", int32, 60_000, at_least(1)),
            ("group.share.max.size", int16, 200, between(10, 1000)),
            ("group.share.min.heartbeat.interval.ms", int32, 5000, at_least(1)),
            ("group.share.min.record.lock.duration.ms", int32, 15_000, between(1000, 30000)),
            ("group.share.min.session.timeout.ms", int32, 45_000, at_least(1)),
            ("group.share.partition.max.record.locks", int32, 200, between(100, 10000)),
            ("group.share.record.lock.duration.ms", int32, 30_000, between(1000, 60000)),
            ("group.share.session.timeout.ms", int32, 45_000, at_least(1)),
        ),
    ),
    *accepted(
        "no Java classes are loaded",
        (
            ("alter.config.policy.class.name", class_name, None),
            ("client.quota.callback.class", class_name, None),
            ("create.topic.policy.class.name", class_name, None),
        ),
    ),
    *accepted(
        "metrics are not reported through Java classes",
        (
            ("auto.include.jmx.reporter", boolean, True),
            ("kafka.metrics.polling.interval.secs", int32, 10, at_least(1)),
            ("kafka.metrics.reporters", names, ()),
            ("metric.reporters", names, ()),
            ("metrics.num.samples", int32, 2, at_least(1)),
            ("metrics.recording.level", string, "INFO"),
            ("metrics.sample.window.ms", int64, 30_000, at_least(1)),
        ),
    ),
    *accepted(
        "waiting requests are kept by their deadline; nothing is left to purge",
        (
            ("delete.records.purgatory.purge.interval.requests", int32, 1),
            ("fetch.purgatory.purge.interval.requests", int32, 1000),
            ("producer.purgatory.purge.interval.requests", int32, 1000),
        ),
    ),
    *accepted(
        "one event loop does this work",
        (
            ("group.coordinator.threads", int32, 1, at_least(1)),
            ("num.io.threads", int32, 8, at_least(1)),
            ("num.network.threads", int32, 3, at_least(1)),
        ),
    ),
    *accepted(
        "reading stops by read.ahead.max.requests and read.ahead.max.bytes of each connection",
        (("queued.max.requests", int32, 500, at_least(1)),),
    ),
    *accepted(
        "a commit is written, flushed as log.flush.policy says, and then answered",
        (
            ("group.coordinator.append.linger.ms", int32, 10, at_least(0)),
            ("offsets.commit.required.acks", int16, -1),
            ("offsets.commit.timeout.ms", int32, 5000, at_least(1)),
            ("offsets.load.buffer.size", int32, 5_242_880, at_least(1)),
            ("offsets.topic.compression.codec", int32, 0),
            ("transaction.state.log.load.buffer.size", int32, 5_242_880, at_least(1)),
        ),
    ),
    *accepted(
        "there is one coordinator, and it serves both kinds of groups",
        (("group.coordinator.new.enable", boolean, False),),
    ),
    *accepted(
        "one process beside the broker compacts one log at a time, in pieces of a mebibyte",
        (
            ("log.cleaner.io.buffer.load.factor", double, 0.9),
            ("log.cleaner.io.buffer.size", int32, 524_288, at_least(0)),
            ("log.cleaner.threads", int32, 1, at_least(0)),
        ),
    ),
    *accepted(
        "a log whose disk fails is stopped at once",
        (("log.dir.failure.timeout.ms", int64, 30_000, at_least(1)),),
    ),
    *accepted(
        "it is a switch for the tests of Kafka itself",
        (
            ("metadata.log.segment.min.bytes", int32, 8_388_608, at_least(12)),
            ("server.max.startup.time.ms", int64, LONG_MAX, at_least(0)),
            ("unstable.api.versions.enable", boolean, False),
            ("unstable.feature.versions.enable", boolean, False),
        ),
    ),
]
