"""Makes the directories beside this file again: metadata that Apache Kafka itself wrote.

    python -m tests.storage.metadata.kafka_written.make [NAME...]

Needs Java 17 and Maven. Each Kafka runs, is told to change all kinds of metadata, and stops or is
killed. Ids and times differ from run to run.
"""

from __future__ import annotations

import json
import shutil
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from protocol.records.builder import build_batch
from tests.storage.metadata.kafka_written.folding import Folded
from tests.support.administrator import BROKER, SHA_256, SHA_512, TOPIC, Administrator, Facts
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4, Release
from tests.support.kafka_tools import run_tool

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
METADATA = "__cluster_metadata-0"
KEPT = (".log", ".checkpoint", ".snapshot", "leader-epoch-checkpoint", "partition.metadata")
TOP = ("meta.properties", "bootstrap.checkpoint", ".kafka_cleanshutdown")

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
#: No record every half second that says that nothing happened.
QUIET = {**AUTHORIZER, "metadata.max.idle.interval.ms": "0"}
SNAPSHOTS = {**QUIET, "metadata.log.max.record.bytes.between.snapshots": "4000"}
#: The log loses its first segments; Kafka looks once a minute whether it should.
TRIMMED = {
    **SNAPSHOTS,
    "metadata.log.segment.min.bytes": "2000",
    "metadata.log.segment.bytes": "2000",
    "metadata.max.retention.bytes": "3000",
}
SCRAM_SINCE = 11
UNFINISHED = "3.9-unfinished"


class Written(NamedTuple):
    """One directory: which Kafka writes it and how it ends."""

    name: str
    release: Release
    settings: dict[str, str]
    clean: bool
    format: tuple[str, ...] = ()
    dynamic: bool = False
    #: What happens after the ordinary changes, before the end.
    then: Callable[[KafkaProcess], None] | None = None


def main() -> None:
    wanted = sys.argv[1:]
    for written in WRITTEN:
        if not wanted or written.name in wanted:
            with tempfile.TemporaryDirectory() as folder:
                make(written, Path(folder))
    if not wanted or UNFINISHED in wanted:
        with tempfile.TemporaryDirectory() as folder:
            make_unfinished(Path(folder))


def make_unfinished(folder: Path) -> None:
    """A transaction without an end behind the log of a Kafka that stopped, and Kafka's view of it.

    No Kafka can be killed at that moment, so these bytes are put together here; the frames are
    those of Kafka in storage.md 16.4.
    """
    target = HERE / UNFINISHED
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(HERE / "3.9-stopped", target)
    expected = json.loads((target / "expected.json").read_text())
    topic_id = bytes(range(16))
    values = (
        b"\x01\x17\x00\x01\x00\x05\x05cut!",
        b"\x01\x02\x00\x06ghost" + topic_id + b"\x00",
        b"\x01\x04\x00\x02\x06plain\x0dretention.ms\x021\x00",
    )
    batch = build_batch(
        [(1_700_000_000_000, None, value, ()) for value in values],
        base_offset=expected["end_offset"],
        leader_epoch=expected["epoch"],
    )
    with (target / METADATA / f"{0:020}.log").open("ab") as log:
        log.write(batch)
    shutil.copytree(target, folder / "logs")
    with (
        KafkaProcess(folder / "kafka", logs=folder / "logs", settings=AUTHORIZER) as kafka,
        Administrator(kafka.host, kafka.port) as admin,
    ):
        facts = admin.facts()
    found = fold(kafka, folder / "logs")
    assert "ABORT_TRANSACTION_RECORD 0" in found.kinds
    assert set(facts.topics) == set(found.topics) == set(expected["topics"])
    assert facts.configs[TOPIC, "plain"]["retention.ms"] == "7200000"
    expected["end_offset"] += len(values)
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def make(written: Written, folder: Path) -> None:
    kafka = KafkaProcess(
        folder / "kafka",
        settings=written.settings,
        release=written.release,
        dynamic=written.dynamic,
        format=written.format,
    )
    kafka.start()
    try:
        change_everything(kafka)
        if written.then is not None:
            written.then(kafka)
        with Administrator(kafka.host, kafka.port) as admin:
            facts = admin.facts(acls=True)
        if written.clean:
            kafka.stop()
    finally:
        if kafka.run is not None:
            kafka.kill()
    restarted = written.then in (begin_another_life, upgrade)
    keep(written.name, kafka, facts, clean=written.clean, restarted=restarted)


def keep(name: str, kafka: KafkaProcess, facts: Facts, *, clean: bool, restarted: bool) -> None:
    """Copy what is to be kept, and write beside it what it comes to."""
    target = HERE / name
    shutil.rmtree(target, ignore_errors=True)
    (target / METADATA).mkdir(parents=True)
    for path in [*(kafka.logs / METADATA).iterdir(), *(kafka.logs / top for top in TOP)]:
        if path.name.endswith((*KEPT, "quorum-state", *TOP)) and path.exists():
            copied = target / path.relative_to(kafka.logs)
            shutil.copy(path, copied)
            copied.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
    folded = fold(kafka, target)
    compare(folded, facts, clean=clean, restarted=restarted)
    newest = kafka.release.version
    expected = {"kafka": newest, "clean": clean, **folded.expected()}
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    size = sum(path.stat().st_size for path in target.rglob("*"))
    print(f"{name}: {size} bytes, end {folded.next_offset}, {sorted(folded.features.items())}")


def fold(kafka: KafkaProcess, target: Path) -> Folded:
    """What the files come to, decoded by Kafka's dump tool."""
    folded = Folded()
    folder = kafka.data
    snapshots = sorted((target / METADATA).glob("*.checkpoint"))
    if snapshots:
        end, _, epoch = snapshots[-1].name.removesuffix(".checkpoint").partition("-")
        folded.add_snapshot(dumped(kafka, snapshots[-1], folder), int(end), int(epoch))
    for log in sorted((target / METADATA).glob("*.log")):
        text = dumped(kafka, log, folder)
        if "baseOffset: " in text:
            folded.add_log(text)
    folded.end()
    return folded


def dumped(kafka: KafkaProcess, path: Path, folder: Path) -> str:
    words = ("--cluster-metadata-decoder", "--files", str(path))
    ended = run_tool(kafka.release, kafka.release.dump_tool, *words, folder=folder)
    assert ended.code == 0, ended.err
    return ended.out


def compare(folded: Folded, facts: Facts, *, clean: bool, restarted: bool) -> None:
    """See that Kafka said the same while it ran. When it stops it takes the leaders away."""
    topics = {
        name: (
            topic["topic_id"],
            [
                (
                    p["leader"] if not clean else 1,
                    p["leader_epoch"] - int(clean),
                    tuple(p["replicas"]),
                    # With eligible leader replicas the last one leaves at the end.
                    tuple(p["isr"] if not clean else p["isr"] or p["elr"]),
                )
                for p in topic["partitions"]
            ],
        )
        for name, topic in folded.topics.items()
    }
    assert topics == {name: tuple(topic) for name, topic in facts.topics.items()}
    if restarted:
        # A Kafka (3.9.1, 4.3.1) that reads its log in one go gives a topic that was made again the
        # configs of the one before, and forgets the other users of a mechanism when one loses his
        # password. Its metadata shell does not, nor did it itself before the restart.
        facts.configs.pop((TOPIC, "again"), None)
    configs = {key: value for key, value in folded.configs.items() if key[0] in (TOPIC, BROKER)}
    assert configs == facts.configs, (configs, facts.configs)
    assert folded.quotas == facts.quotas, (folded.quotas, facts.quotas)
    users = {key: user["iterations"] for key, user in folded.users.items()}
    assert users == facts.users or (restarted and facts.users.items() < users.items())
    acls = {
        (
            acl["resourceType"],
            acl["resourceName"],
            acl["patternType"],
            acl["principal"],
            acl["host"],
            acl["operation"],
            acl["permissionType"],
        )
        for acl in folded.acls.values()
    }
    assert acls == facts.acls, (acls, facts.acls)
    features = dict(facts.features)
    features.pop("kraft.version", None)  # not in records like the others
    assert folded.features == features, (folded.features, features)


# What is changed


def change_everything(kafka: KafkaProcess) -> None:
    """Topics come, go, come again and grow; configs, quotas, users and rights come and go."""
    with Administrator(kafka.host, kafka.port, timeout_s=30) as admin:
        change_topics(admin)
        change_configs(admin)
        change_quotas(admin)
        if admin.features()["metadata.version"] >= SCRAM_SINCE:
            for user, mechanism in (("alice", SHA_256), ("bob", SHA_256), ("bob", SHA_512)):
                admin.set_password(user, mechanism, bytes(range(32 * mechanism)))
            admin.set_password("carol", SHA_512, bytes(64))
            admin.set_password("carol", SHA_512, None)
        change_rights(admin)
        admin.new_producer_id()


def change_topics(admin: Administrator) -> None:
    admin.create("orders", 3, configs={"cleanup.policy": "compact", "segment.ms": "60000"})
    admin.create("plain")
    admin.create("a.b_c-1", assignments=(1, 1))
    admin.create("grown")
    admin.grow("grown", 4)
    admin.create("gone", 2, configs={"retention.ms": "1"})
    admin.delete_topic("gone")
    admin.create("again", configs={"retention.bytes": "1000"})
    admin.delete_topic("again")
    admin.create("again", 2)


def change_configs(admin: Administrator) -> None:
    admin.alter(TOPIC, "plain", retention_ms="3600000", max_message_bytes="100000")
    admin.alter(TOPIC, "plain", retention_ms="7200000")
    admin.alter(TOPIC, "orders", segment_ms=None)
    admin.alter(BROKER, "", message_max_bytes="2000000", log_retention_ms="86400000")
    admin.alter(BROKER, "1", log_cleaner_threads="2")
    admin.alter(BROKER, "", log_retention_ms=None)


def change_quotas(admin: Administrator) -> None:
    admin.set_quota({"user": "alice"}, "producer_byte_rate", 1024.0)
    admin.set_quota({"user": "alice"}, "request_percentage", 50.5)
    admin.set_quota({"user": None}, "consumer_byte_rate", 2048.0)
    admin.set_quota({"client-id": "app"}, "producer_byte_rate", 10.0)
    admin.set_quota({"client-id": None}, "producer_byte_rate", 20.0)
    admin.set_quota({"user": "alice", "client-id": None}, "consumer_byte_rate", 30.0)
    admin.set_quota({"client-id": "app", "user": None}, "controller_mutation_rate", 5.0)
    admin.set_quota({"ip": "127.0.0.9"}, "connection_creation_rate", 10.0)
    admin.set_quota({"ip": None}, "connection_creation_rate", 100.0)
    admin.set_quota({"user": "bob"}, "producer_byte_rate", 1.0)
    admin.set_quota({"user": "bob"}, "producer_byte_rate", None)


def change_rights(admin: Administrator) -> None:
    admin.allow(2, "orders", "User:alice", 3)
    admin.allow(2, "or", "User:alice", 4, pattern=4)
    admin.allow(3, "readers", "User:alice", 3)
    admin.allow(2, "plain", "User:dave", 3)
    admin.disallow("User:dave")


def change_more(kafka: KafkaProcess) -> None:
    """After a snapshot: each kind of thing that is in it changes."""
    wait_for(kafka, "*.checkpoint", 1)
    with Administrator(kafka.host, kafka.port, timeout_s=30) as admin:
        admin.create("later", 2, configs={"retention.ms": "5"})
        admin.delete_topic("plain")
        admin.grow("orders", 5)
        admin.alter(TOPIC, "later", retention_ms=None, segment_bytes="2000000")
        admin.set_quota({"user": "alice"}, "request_percentage", None)
        admin.set_password("alice", SHA_256, None)
        admin.set_password("dave", SHA_256, bytes(32))
        admin.disallow("User:alice")
        admin.new_producer_id()


def begin_another_life(kafka: KafkaProcess) -> None:
    """A clean stop and a start: leaders go and come, the broker registers again."""
    kafka.stop()
    kafka.start()


def lose_the_beginning(kafka: KafkaProcess) -> None:
    """Until the log begins above offset 0."""
    change_more(kafka)
    folder = kafka.logs / METADATA
    deadline = time.monotonic() + 200
    with Administrator(kafka.host, kafka.port, timeout_s=30) as admin:
        while (folder / f"{0:020}.log").exists():
            assert time.monotonic() < deadline
            admin.alter(TOPIC, "orders", segment_ms=str(60000 + int(deadline - time.monotonic())))
            time.sleep(0.5)


def upgrade(kafka: KafkaProcess) -> None:
    """Kafka 4 on the directory of 3.9, and then to the newest level that it knows."""
    kafka.stop()
    theirs = kafka.release
    kafka.become(KAFKA_4)
    assert kafka.release is not theirs
    kafka.start()
    with Administrator(kafka.host, kafka.port, timeout_s=30) as admin:
        admin.create("between")
        admin.update_feature("metadata.version", 30)
        admin.create("afterwards", 2)
    kafka.stop()
    kafka.start()


def wait_for(kafka: KafkaProcess, pattern: str, count: int) -> None:
    deadline = time.monotonic() + 30
    while len(list((kafka.logs / METADATA).glob(pattern))) < count:
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.1)


def at(release: str) -> tuple[str, ...]:
    return ("--release-version", release)


WRITTEN = (
    Written("3.9-killed", KAFKA_3_9, AUTHORIZER, clean=False, then=begin_another_life),
    Written("3.9-stopped", KAFKA_3_9, AUTHORIZER, clean=True),
    Written("3.9-snapshot", KAFKA_3_9, SNAPSHOTS, clean=False, then=change_more),
    Written("3.9-trimmed", KAFKA_3_9, TRIMMED, clean=True, then=lose_the_beginning),
    Written("3.9-dynamic", KAFKA_3_9, SNAPSHOTS, clean=True, dynamic=True, then=change_more),
    Written("3.9-level-7", KAFKA_3_9, QUIET, clean=False, format=at("3.3-IV3")),
    Written("3.9-level-14", KAFKA_3_9, QUIET, clean=True, format=at("3.6-IV2")),
    Written("3.9-level-17", KAFKA_3_9, QUIET, clean=False, format=at("3.7-IV2")),
    Written("3.9-then-4", KAFKA_3_9, QUIET, clean=True, then=upgrade),
    Written("4-level-21", KAFKA_4, QUIET, clean=True, format=at("3.9-IV0")),
    Written("4-level-25", KAFKA_4, QUIET, clean=False, format=at("4.0-IV3")),
    Written("4-killed", KAFKA_4, AUTHORIZER, clean=False, then=begin_another_life),
    Written("4-stopped", KAFKA_4, AUTHORIZER, clean=True),
    Written("4-snapshot", KAFKA_4, SNAPSHOTS, clean=False, dynamic=True, then=change_more),
)


if __name__ == "__main__":
    main()
