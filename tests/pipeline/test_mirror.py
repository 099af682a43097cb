"""Mirroring between real brokers, with the job's task called as Spark would call it."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import pytest

from client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from pipeline.delivering.delivery import Delivery
from pipeline.delivering.destination import make_like, terms
from pipeline.errors import ForeignState, NoSuchTopic, Refused, WrongUse
from pipeline.jobs.mirror import Mirror
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from protocol.records.legacy import build_messages, read_messages
from tests.pipeline.cutting_proxy import CuttingProxy
from tests.pipeline.mirroring import digest, micro_batch, records, stored
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.compacted import AT_ONCE, wait_until
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from client.producing import Producing

NOW_MS = 1_700_000_000_000
KILLS = 2
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A second broker, to mirror to."""
    with BrokerProcess(tmp_path_factory.mktemp("other") / "data") as process:
        yield process


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here takes long to be carried out."""
    monkeypatch.setattr("pipeline.delivering.mirror_job.Delivery", partial(Delivery, settle_s=0.1))


def fill(
    servers: str, topic: str, *, batches: int = 40, partitions: int = 2, size: int = 50
) -> None:
    """Batches of all codecs, of producers with ids and without, and with headers."""
    chance = random.Random(topic)
    with Cluster(servers) as cluster:
        cluster.create_topic(topic, partitions, {"retention.ms": "-1"})
        following = [0] * 3
        begun: deque[Producing] = deque()
        for number in range(batches):
            place = TopicPartition(topic, number % partitions)
            rows = [
                (NOW_MS + index, b"k%d" % index, chance.randbytes(size), (("h", b"%d" % number),))
                for index in range(1 + number % 7)
            ]
            producer = number // partitions % 4
            if producer < 3 and not place.partition:
                batch = build_batch(
                    rows, codec=CODECS[number % 5], producer_id=producer + 1000, producer_epoch=0,
                    base_sequence=following[producer],
                )  # fmt: skip
                following[producer] += len(rows)
            else:
                batch = build_batch(rows, codec=CODECS[number % 5])
            begun.append(cluster.begin_produce(place, [batch]))
            if len(begun) > 4:
                cluster.finish_produce(begun.popleft())
        for one in begun:
            cluster.finish_produce(one)


def test_batches_arrive_with_their_bytes_in_their_order(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker.bootstrap, "bytes")
    mirror = Mirror(broker.bootstrap, other.bootstrap, str(tmp_path / "state"), ("bytes",))
    results = micro_batch(mirror)
    assert sum(facts["counts"]["sent"] for facts in results) == 40
    for partition in range(2):
        source = stored(broker.bootstrap, "bytes", partition)
        copy = stored(other.bootstrap, "bytes", partition)
        assert [entry[16:] for entry in copy] == [entry[16:] for entry in source]
        assert [entry[:8] for entry in copy] == [entry[:8] for entry in source]
    with Cluster(other.bootstrap) as cluster:
        assert cluster.topic_configs("bytes", own=True) == {"retention.ms": "-1"}
    # What comes later follows, and nothing is sent twice.
    fill(broker.bootstrap, "bytes-later", batches=3, partitions=1)
    with Cluster(broker.bootstrap) as cluster:
        for entry in stored(broker.bootstrap, "bytes-later"):
            cluster.produce(TopicPartition("bytes", 1), [bytes(8) + entry[8:]])
    again = micro_batch(mirror)
    assert [facts["counts"].get("sent", 0) for facts in again if facts["records"]] == [3]
    for partition in range(2):
        assert digest(stored(other.bootstrap, "bytes", partition)) == digest(
            stored(broker.bootstrap, "bytes", partition)
        )


def test_a_micro_batch_that_was_not_committed_is_found_and_not_sent_again(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker.bootstrap, "repeated", batches=20)
    mirror = Mirror(broker.bootstrap, other.bootstrap, str(tmp_path / "state"), ("repeated",))
    micro_batch(mirror, commit=False)
    results = micro_batch(mirror)
    assert sum(facts["counts"]["found"] for facts in results) == 20
    assert not any(facts["counts"].get("sent") for facts in results)
    for partition in range(2):
        assert digest(stored(other.bootstrap, "repeated", partition)) == digest(
            stored(broker.bootstrap, "repeated", partition)
        )


def test_a_task_killed_again_and_again_leaves_each_record_once(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker.bootstrap, "killed", batches=1_500, partitions=1, size=900)
    place = TopicPartition("killed", 0)
    words = [broker.bootstrap, other.bootstrap, str(tmp_path / "state"), "killed"]
    command = [sys.executable, "-m", "tests.pipeline.mirroring", *words]
    kills = 0
    seen = 0
    with Cluster(other.bootstrap) as cluster, Cluster(broker.bootstrap) as source:
        cluster.create_topic("killed", 1)
        whole = source.offsets([place], LATEST)[place]
        while kills < KILLS:
            process = subprocess.Popen(command, cwd=CHECKOUT)
            limit = seen + whole // (KILLS + 2)
            while process.poll() is None and cluster.offsets([place], LATEST)[place] < limit:
                time.sleep(0.002)
            if process.poll() is not None:
                break
            process.kill()
            process.wait()
            kills += 1
            seen = cluster.offsets([place], LATEST)[place]
        assert kills == KILLS
        subprocess.run(command, cwd=CHECKOUT, check=True, timeout=60)
    assert digest(stored(other.bootstrap, "killed")) == digest(stored(broker.bootstrap, "killed"))


def test_connections_that_break_leave_each_record_once_and_in_order(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker.bootstrap, "broken", batches=700, partitions=1, size=300)
    with CuttingProxy(random.Random(5), least=20_000, most=120_000, cuts=8) as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with BrokerProcess(tmp_path / "data", settings=settings) as server:
            proxy.target_port = server.port
            to = f"127.0.0.1:{proxy.port}"
            mirror = Mirror(broker.bootstrap, to, str(tmp_path / "state"), ("broken",))
            (facts,) = micro_batch(mirror)
            assert proxy.cuts_left == 0
            assert facts["counts"]["lost"] > 8
            assert not facts["counts"].get("foreign")
            assert not facts["counts"].get("out_of_order")
            assert digest(stored(to, "broken")) == digest(stored(broker.bootstrap, "broken"))


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_old_formats_arrive_as_batches_with_the_same_records(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path, version: str
) -> None:
    magic = 0 if version == "0.9.0" else 1
    topic = f"old-{version}"
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic(topic, 1, {"message.format.version": version})
        for codec in (NONE, GZIP, SNAPPY, LZ4, NONE, NONE):
            rows = [(NOW_MS + index, b"k", b"%d" % index, ()) for index in range(30)]
            entries = [build_messages(rows, magic=magic, codec=codec)]
            cluster.produce(TopicPartition(topic, 0), entries, magic=magic)
    source = stored(broker.bootstrap, topic)
    assert {entry[16] for entry in source} == {magic}
    mirror = Mirror(broker.bootstrap, other.bootstrap, str(tmp_path / "state"), (topic,))
    micro_batch(mirror, commit=False)
    (facts,) = micro_batch(mirror)
    assert not facts["counts"].get("sent")
    copy = stored(other.bootstrap, topic)
    assert {entry[16] for entry in copy} == {2}
    assert [Batch(memoryview(entry)).codec for entry in copy] == [NONE, GZIP, SNAPPY, LZ4, NONE]
    assert digest(copy) == digest(source)
    # To a topic of the same format nothing is converted, and wrappers keep their bytes.
    with Cluster(other.bootstrap) as cluster:
        cluster.create_topic(f"same-{topic}", 1, {"message.format.version": version})
    same = Mirror(
        broker.bootstrap, other.bootstrap, str(tmp_path / "same"), (topic,), rename="same-{topic}"
    )
    micro_batch(same, commit=False)
    (facts,) = micro_batch(same)
    assert not facts["counts"].get("sent")
    copy = stored(other.bootstrap, f"same-{topic}")
    assert {entry[16] for entry in copy} == {magic}
    assert digest(copy) == digest(source)
    assert [entry[8:] for entry in copy] == [entry[8:] for entry in source]


def test_wrappers_of_format_1_that_compaction_left_with_holes_arrive_and_are_recognised(
    other: BrokerProcess, tmp_path: Path
) -> None:
    settings = {"message.format.version": "0.10.2", "cleanup.policy": "compact"}
    at_once = {"segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.0"}
    with BrokerProcess(tmp_path / "data", settings=AT_ONCE) as broker:
        with Cluster(broker.bootstrap) as source:
            source.create_topic("holes", 1, settings | at_once)
            for number in range(12):
                rows = [
                    (NOW_MS + number, key, b"%d" % number * 50, ())
                    for key in (b"kept%d" % number, b"a", b"b", b"last%d" % number)
                ]
                wrapper = build_messages(rows, magic=1, codec=GZIP)
                source.produce(TopicPartition("holes", 0), [wrapper], magic=1)
        awaited = functools.partial(has_holes, broker.bootstrap, "holes")
        wait_until(awaited, "compaction")
        with Cluster(other.bootstrap) as destination:
            destination.create_topic("holes", 1, settings | {"min.cleanable.dirty.ratio": "1.0"})
        mirror = Mirror(broker.bootstrap, other.bootstrap, str(tmp_path / "state"), ("holes",))
        (sent,) = micro_batch(mirror, commit=False)
        (repeated,) = micro_batch(mirror)
        source_records = records(stored(broker.bootstrap, "holes"))

    assert sent["counts"]["rebuilt"] > 0
    assert repeated["counts"].get("sent", 0) == 0, "what was made anew has the same bytes"
    copies = records(stored(other.bootstrap, "holes"))
    assert [(one.timestamp_ms, one.key, one.value) for one in copies] == [
        (one.timestamp_ms, one.key, one.value) for one in source_records
    ]


def has_holes(servers: str, topic: str) -> bool:
    """Whether a wrapper of the topic has lost records from its middle."""
    inner = [[one.offset for one in read_messages(entry)] for entry in stored(servers, topic)]
    return any(offsets[-1] - offsets[0] >= len(offsets) for offsets in inner)


def test_a_destination_that_changes_batches_is_recognised_by_records(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker.bootstrap, "changed", batches=20, partitions=1)
    settings = {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}
    with Cluster(other.bootstrap) as cluster:
        cluster.create_topic("changed", 1, settings)
    mirror = Mirror(broker.bootstrap, other.bootstrap, str(tmp_path / "state"), ("changed",))
    micro_batch(mirror, commit=False)
    (facts,) = micro_batch(mirror)
    assert facts["counts"] == {"found": 20, "found_records": facts["records"]}
    source, copy = stored(broker.bootstrap, "changed"), stored(other.bootstrap, "changed")
    assert [(one.key, one.value) for one in records(copy)] == [
        (one.key, one.value) for one in records(source)
    ]


def delete_before(broker: BrokerProcess, topic: str, offset: int) -> None:
    with WireClient("127.0.0.1", broker.port) as client:
        kind = DeleteRecordsRequest.Topic
        partitions = [kind.Partition(partition_index=0, offset=offset)]
        topics = [kind(name=topic, partitions=partitions)]
        client.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000))


def test_offsets_that_are_gone_are_told_and_may_be_left_out(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    """Sequences of producers have holes then, which the destination would refuse later on."""
    fill(broker.bootstrap, "gone", batches=20, partitions=1)
    mirror = Mirror(
        broker.bootstrap, other.bootstrap, str(tmp_path / "state"), ("gone",), on_gap="skip"
    )
    first = stored(broker.bootstrap, "gone")[:6]
    at = Batch(memoryview(first[-1])).last_offset + 1
    delete_before(broker, "gone", at)
    with Cluster(broker.bootstrap) as cluster:
        assert (
            cluster.offsets([TopicPartition("gone", 0)], EARLIEST)[TopicPartition("gone", 0)] == at
        )
    (facts,) = micro_batch(mirror)
    assert facts["offsets_missing"] == at
    assert digest(stored(other.bootstrap, "gone")) == digest(stored(broker.bootstrap, "gone"))


def test_what_cannot_work_is_said_before_anything_is_made(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker.bootstrap, "checks", batches=4)
    state = str(tmp_path / "state")
    here, there = broker.bootstrap, other.bootstrap
    with pytest.raises(WrongUse, match="'checks' would be mirrored into itself"):
        Mirror(here, here, state, ("checks",)).check()
    with pytest.raises(WrongUse, match=r"matches 'chec\.\*' too"):
        Mirror(here, here, state, pattern="chec.*", rename="checks-{topic}").check()
    with pytest.raises(WrongUse, match="all topics would be written to 'one'"):
        Mirror(here, there, state, ("checks", "bytes"), rename="one").check()
    with pytest.raises(NoSuchTopic, match="did you mean 'checks'"):
        Mirror(here, there, state, ("cheks",)).check()
    with pytest.raises(WrongUse, match="no interval"):
        Mirror(here, there, state, ("checks",), every_s=0).check()
    with Cluster(there) as cluster:
        assert "checks" not in cluster.topics()
        cluster.create_topic("checks", 1)
        with pytest.raises(Refused, match="has 1 partitions, and 'checks' has 2"):
            Mirror(here, there, state, ("checks",)).check()
        cluster.create_topic("used", 2)
        cluster.produce(TopicPartition("used", 1), [build_batch([(NOW_MS, None, b"here", ())])])
        used = Mirror(here, there, state, ("checks",), rename="used")
        for begin in (used.check, lambda: micro_batch(used)):
            with pytest.raises(ForeignState, match=r"used-1 on .* has 1 offsets already"):
                begin()
        assert cluster.offsets([TopicPartition("used", 0)], LATEST)[TopicPartition("used", 0)] == 0
        behind = Mirror(here, there, state, ("checks",), rename="used", append=True)
        behind.check()
        micro_batch(behind)
        used.check()
    assert records(stored(there, "used", 1))[0].value == b"here"
    with pytest.raises(ForeignState, match="is of rename 'used'"):
        Mirror(here, there, state, ("checks",), rename="other").check()


def test_a_topic_met_on_the_way_is_not_sent_twice_though_retention_took_some_of_it(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker.bootstrap, "met-first", batches=2, partitions=1)
    state = str(tmp_path / "state")
    mirror = Mirror(broker.bootstrap, other.bootstrap, state, pattern="met-.*")
    micro_batch(mirror)
    fill(broker.bootstrap, "met-later", batches=8, partitions=1)
    micro_batch(mirror, commit=False)
    copy = stored(other.bootstrap, "met-later")
    delete_before(other, "met-later", Batch(memoryview(copy[3])).base_offset)
    micro_batch(mirror)
    assert digest(stored(other.bootstrap, "met-later")) == digest(copy[3:])


def test_a_state_that_has_lost_its_checkpoint_does_not_send_all_of_it_again(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    mirror = Mirror(broker.bootstrap, other.bootstrap, str(tmp_path / "state"), ("forgotten",))
    place = TopicPartition("forgotten", 0)
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("forgotten", 1)
        for number in range(7):
            cluster.produce(place, [build_batch([(NOW_MS, None, b"%d" % number, ())])])
            micro_batch(mirror)
            if number == 2:
                # The ends of all of them are noted still.
                (tmp_path / "state" / "planned.json").unlink()
                micro_batch(mirror)
    assert [one.value for one in records(stored(other.bootstrap, "forgotten"))] == [
        b"%d" % number for number in range(7)
    ]
    (tmp_path / "state" / "planned.json").unlink()
    with pytest.raises(ForeignState, match="checkpoint was removed or replaced"):
        micro_batch(mirror)


def test_plain_messages_are_put_together_into_what_the_destination_takes(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    place = TopicPartition("close-fit", 0)
    with Cluster(broker.bootstrap) as cluster:
        settings = {"message.format.version": "0.10.2", "max.message.bytes": "5000"}
        cluster.create_topic("close-fit", 1, settings)
        for number in range(20):
            rows = [(NOW_MS + number, b"k", b"%d" % index * 500, ()) for index in range(5)]
            cluster.produce(place, [build_messages(rows, magic=1)], magic=1)
    mirror = Mirror(broker.bootstrap, other.bootstrap, str(tmp_path / "state"), ("close-fit",))
    micro_batch(mirror)
    copy = stored(other.bootstrap, "close-fit")
    assert digest(copy) == digest(stored(broker.bootstrap, "close-fit"))
    assert len(copy) < 20
    assert max(map(len, copy)) <= 5_000


def test_a_batch_that_is_too_large_is_refused_by_its_name(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker.bootstrap, "large", batches=4, partitions=1, size=3_000)
    with Cluster(other.bootstrap) as cluster:
        cluster.create_topic("large", 1, {"max.message.bytes": "9000"})
    mirror = Mirror(broker.bootstrap, other.bootstrap, str(tmp_path / "state"), ("large",))
    with pytest.raises(Refused, match=r"MESSAGE_TOO_LARGE.*source.*offset 5"):
        micro_batch(mirror)
    # What came before it is there once when there is room for the rest.
    with Cluster(other.bootstrap) as cluster:
        place = TopicPartition("large", 0)
        assert cluster.offsets([place], LATEST)[place] == 3


class Choosy(Cluster):
    """Does not know some settings of topics, and names the one that it met."""

    def __init__(self, servers: str, unknown: tuple[str, ...], *, naming: bool) -> None:
        super().__init__(servers)
        self.unknown = unknown
        self.naming = naming

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        for key in self.unknown:
            if key in (configs or {}):
                text = f"unknown setting {key}" if self.naming else "unknown setting"
                raise Refused(text, ErrorCode.INVALID_CONFIG)
        super().create_topic(name, partitions, configs)


@pytest.mark.parametrize("naming", [True, False])
def test_settings_that_the_destination_does_not_know_are_left_out(
    broker: BrokerProcess, other: BrokerProcess, naming: bool
) -> None:
    topic = f"settings-{naming}"
    own = {
        "retention.ms": "5000000",
        "delete.retention.ms": "1000000",
        "segment.ms": "600000",
        "compression.type": "gzip",
        "cleanup.policy": "compact",
    }
    unknown = ("segment.ms", "cleanup.policy", "delete.retention.ms")
    with (
        Cluster(broker.bootstrap) as source,
        Choosy(other.bootstrap, unknown, naming=naming) as cluster,
    ):
        source.create_topic(topic, 3, own)
        assert make_like(source, cluster, {topic: topic}) == [topic]
        assert make_like(source, cluster, {topic: topic}) == []
        assert len(cluster.partitions([topic])) == 3
        found = cluster.topic_configs(topic, own=True)
        assert found == ({"retention.ms": "5000000"} if naming else {})


def test_copies_that_are_missing_are_made_and_one_that_is_too_small_is_named(
    broker: BrokerProcess, other: BrokerProcess
) -> None:
    with Cluster(broker.bootstrap) as source, Cluster(other.bootstrap) as cluster:
        for number in (1, 2, 3):
            source.create_topic(f"copied-{number}", number)
        cluster.create_topic("copied-2", 2)
        assert cluster.existing(["copied-1", "copied-2"]) == ["copied-2"]
        copies = {name: name for name in ("copied-1", "copied-2", "copied-3")}
        assert make_like(source, cluster, copies) == ["copied-1", "copied-3"]
        assert len(cluster.partitions(copies)) == 6
        with pytest.raises(Refused, match=r"'copied-1' on .* has 1 partitions, and 'copied-3' has"):
            make_like(source, cluster, {"copied-2": "copied-2", "copied-3": "copied-1"})
        with pytest.raises(NoSuchTopic, match=r"no topic 'copied-4'.*did you mean"):
            make_like(source, cluster, {**copies, "copied-4": "copied-4"})


def test_a_destination_that_may_refuse_anything_is_treated_warily(other: BrokerProcess) -> None:
    with Cluster(other.bootstrap) as cluster:
        for name, settings, wary in (
            ("plain", {}, False),
            ("replicated", {"min.insync.replicas": "2"}, True),
            ("compacted", {"cleanup.policy": "compact,delete"}, True),
            ("bounded", {"message.timestamp.before.max.ms": "1000"}, True),
        ):
            cluster.create_topic(f"terms-{name}", 1, settings)
            asked = terms(cluster, TopicPartition(f"terms-{name}", 0))
            assert (asked.magic, asked.wary) == (2, wary)
