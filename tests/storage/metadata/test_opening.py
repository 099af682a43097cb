"""Opening metadata to lead it: of a new directory, of Kafka's, of another node's."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from protocol.logdata.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    KRaftVersionRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    UserScramCredentialRecord,
    VotersRecord,
    ZkMigrationStateRecord,
    control_batch,
    encode_record,
    metadata_batch,
)
from storage.data_dir import DataDirectory
from storage.disk import DiskFilesystem
from storage.errors import DataDirectoryError
from storage.identity import MetaProperties, encode_partition_metadata, uuid_of
from storage.metadata.loading import load
from storage.metadata.opening import open_metadata
from tests.storage.metadata.metadata_files import (
    BATCHES,
    LEVEL,
    PATH,
    batch,
    log_path,
    topic,
    topic_id,
    with_log,
    write_snapshot,
)
from tests.storage.metadata.opening_metadata import (
    BOOTSTRAP,
    blank,
    opened,
    refusal,
    stored_batches,
)
from tests.storage.metadata.snapshot_files import FOLDER, NOW_MS
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut
from tests.support.topic_store import IDENTITY, open_topics

if TYPE_CHECKING:
    from protocol.logdata.metadata import MetadataRecord
    from storage.metadata.store import MetadataStore

QUORUM_STATE = f"{FOLDER}/quorum-state"
KAFKA_WRITTEN = Path(__file__).parent / "kafka_written"
LOG = b"".join(BATCHES)


def bootstrap(*records: MetadataRecord) -> bytes:
    place = {"epoch": 0, "timestamp_ms": NOW_MS}
    header = SnapshotHeaderRecord(last_contained_log_timestamp=0)
    footer = SnapshotFooterRecord()
    values = [encode_record(record) for record in records]
    return bytes(
        control_batch([header], base_offset=0, **place)
        + metadata_batch(values, base_offset=1, **place)
        + control_batch([footer], base_offset=1 + len(records), **place)
    )


# A new directory


def test_a_blank_directory_begins_as_one_of_kafka_does() -> None:
    files = blank()

    store, reports = opened(files)

    first, second = stored_batches(files)
    assert (first.is_control, first.epoch, first.records[0].leader_id) == (True, 1, 1)
    names = [type(record).__name__ for record in second.records]
    assert names == ["BeginTransactionRecord", "FeatureLevelRecord", "EndTransactionRecord"]
    assert second.records[0].name == "Bootstrap records"
    assert store.image.features == {"metadata.version": 21}
    assert json.loads(files.read_bytes(QUORUM_STATE))["leaderEpoch"] == 1
    assert files.exists(BOOTSTRAP)
    assert reports == []


def test_every_start_is_an_epoch_of_its_own() -> None:
    files = blank()
    epochs = [opened(files)[0].log.epoch for _ in range(3)]
    assert epochs == [1, 2, 3]
    assert [one.epoch for one in stored_batches(files)] == [1, 1, 2, 3]


def test_a_bootstrap_file_gives_the_level_and_users_of_a_new_log() -> None:
    user = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    files = blank()
    level = FeatureLevelRecord(name="metadata.version", feature_level=14)
    group = FeatureLevelRecord(name="group.version", feature_level=1)
    files.write_bytes(BOOTSTRAP, bootstrap(level, group, user))

    store, _ = opened(files)

    assert store.image.features == {"metadata.version": 14, "group.version": 1}
    assert store.image.scram_credentials == {("alice", 1): user}
    store.create("t", topic_id(0), 1, {})
    assert load(files, PATH).image.topics["t"].partitions[0].directories == (), "since level 17"


def test_a_level_without_transactions_begins_without_one() -> None:
    files = blank()
    files.write_bytes(
        BOOTSTRAP, bootstrap(FeatureLevelRecord(name="metadata.version", feature_level=7))
    )
    assert opened(files)[0].image.metadata_version == 7
    assert [len(one.records) for one in stored_batches(files)] == [1, 1]
    assert opened(files)[0].image.metadata_version == 7


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "bootstrap.checkpoint, position 0"),
        (bootstrap(LEVEL)[:-1], "bootstrap.checkpoint, position"),
        (bootstrap(ZkMigrationStateRecord(zk_migration_state=0)), "no metadata.version"),
        (
            bootstrap(FeatureLevelRecord(name="metadata.version", feature_level=34)),
            "metadata.version is 34",
        ),
        (bootstrap(LEVEL).replace(b"\x01\x0c\x00", b"\x01\x0d\x00"), "bootstrap.checkpoint"),
    ],
)
def test_a_bootstrap_file_that_can_not_be_used_is_refused(content: bytes, told: str) -> None:
    files = blank()
    files.write_bytes(BOOTSTRAP, content)
    assert told in refusal(files)


LONG = bootstrap(
    LEVEL,
    *(
        ConfigRecord(resource_type=2, resource_name=f"t{n}", name="retention.ms", value=f"{n:0250}")
        for n in range(500)
    ),
)


def with_long_bootstrap() -> MemoryFilesystem:
    files = blank()
    files.write_bytes(BOOTSTRAP, LONG)
    files.sync_all()
    return files


def test_a_long_bootstrap_file_is_taken_over_whole_in_one_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("storage.metadata.metadata_log.BATCH_BYTES", 40_000)
    monkeypatch.setattr("storage.metadata.opening.RECORDS_OF_A_BATCH", 100)
    files = with_long_bootstrap()

    store, _ = opened(files)

    assert len(store.image.configs) == 500
    batches = stored_batches(files)
    assert len(batches) > 3, "no batch is larger than allowed"
    ends = [one for b in batches for one in b.records if isinstance(one, EndTransactionRecord)]
    assert len(ends) == 1
    assert load(files, PATH).image.configs == store.image.configs


def test_a_power_cut_amid_a_long_bootstrap_file_takes_all_of_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("storage.metadata.metadata_log.BATCH_BYTES", 20_000)
    monkeypatch.setattr("storage.metadata.opening.RECORDS_OF_A_BATCH", 50)
    files = with_long_bootstrap()
    files.count = 0
    opened(files)
    calls = files.count
    assert calls > 10
    for cut in range(calls):
        files = with_long_bootstrap()
        files.count, files.cut_at = 0, cut
        with pytest.raises(PowerCut):
            opened(files)
        survivor = files.power_cut(random.Random(cut))
        assert len(opened(survivor)[0].image.configs) == 500


def test_a_bootstrap_file_is_not_looked_at_once_the_log_has_begun() -> None:
    files = blank()
    opened(files)
    files.write_bytes(BOOTSTRAP, b"spoilt")
    assert opened(files)[0].image.metadata_version == 21


def test_partitions_without_metadata_are_no_empty_cluster() -> None:
    files = blank()
    files.make_dir(f"{PATH}/not-a-partition")
    files.write_bytes(f"{PATH}/orders-0/partition.metadata", encode_partition_metadata(topic_id(1)))

    assert "orders-0" in refusal(files)
    files.make_dir(FOLDER)
    assert "orders-0" in refusal(files)


# What a crash has left


def test_m3_a_half_written_change_is_taken_back() -> None:
    files = with_log(LOG + batch(9, [BeginTransactionRecord(name="half"), *topic(3)]))

    store, reports = opened(files)

    assert sorted(store.image.topics) == ["t0", "t1", "t2"]
    (last,) = stored_batches(files)[-1].records
    assert last == AbortTransactionRecord(reason="Controller failover")
    assert "taken back" in str(reports)
    assert load(files, PATH).image.transaction is None
    assert not any("taken back" in str(report) for report in opened(files)[1])


def test_m3_a_half_written_beginning_is_taken_back_and_made_again() -> None:
    """The level is in the transaction: without it, the log is at one that has no transactions."""
    files = with_log(BATCHES[0] + batch(1, [BeginTransactionRecord(), LEVEL]))

    store, _ = opened(files)

    assert store.image.features == {"metadata.version": 21}
    names = [type(record).__name__ for one in stored_batches(files) for record in one.records]
    assert names[3:] == [
        "LeaderChangeMessage", "AbortTransactionRecord", "BeginTransactionRecord",
        "FeatureLevelRecord", "EndTransactionRecord",
    ]  # fmt: skip


def test_a_torn_end_is_cut_and_told() -> None:
    files = with_log(LOG + batch(9, topic(3))[:-7])

    store, reports = opened(files)

    (report,) = [one for one in reports if one.bytes_cut]
    assert report.file == "00000000000000000000.log"
    assert report.position == len(LOG)
    assert report.bytes_cut == len(batch(9, topic(3))) - 7
    assert store.log.end_offset == 10
    assert not opened(files)[1]


def test_a_damaged_snapshot_that_can_be_done_without_is_set_aside_and_told() -> None:
    files = with_log(LOG)
    path = write_snapshot(files, 7, [LEVEL, *topic(0), *topic(1, 2)])
    files.write_bytes(path, files.read_bytes(path)[:-1])

    store, reports = opened(files)

    assert path.rpartition("/")[2] in str(reports)
    assert not files.exists(path)
    assert files.exists(f"{path}.damaged")
    assert store.log.snapshots.ids == []
    assert sorted(opened(files)[0].image.topics) == ["t0", "t1", "t2"]


def test_m8_a_snapshot_without_a_log_goes_on_in_a_new_one() -> None:
    files = blank()
    files.make_dir(FOLDER)
    write_snapshot(files, 9, [LEVEL, *topic(0)], epoch=3)
    files.write_bytes(log_path(), b"")

    store, _ = opened(files)

    assert store.log.epoch == 4
    assert store.log.log.start_offset == 9
    assert not files.exists(log_path())
    assert stored_batches(files, 9)[0].base_offset == 9
    assert list(opened(files)[0].image.topics) == ["t0"]


def test_m9_unfinished_snapshots_are_removed() -> None:
    files = with_log(LOG)
    left = [
        f"{FOLDER}/00000000000000000007-0000000001{end}"
        for end in ("-abc.checkpoint.part", ".checkpoint.part", ".checkpoint.deleted")
    ]
    for path in left:
        files.write_bytes(path, b"half")
    opened(files)
    assert not any(files.exists(path) for path in left)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[]", b"{}", b'{"leaderEpoch": "5"}', b'{"leaderEpoch": -1}',
     b'{"leaderEpoch": true}', b'{"leaderEpoch": 2147483647}', b'{"leaderEpoch": 1e99}'],
)  # fmt: skip
def test_m11_a_quorum_state_that_can_not_be_read_is_told_and_written_again(content: bytes) -> None:
    files = with_log(LOG)
    files.write_bytes(QUORUM_STATE, content)

    store, reports = opened(files)

    assert store.log.epoch == 2
    assert "quorum-state" in str(reports)
    assert json.loads(files.read_bytes(QUORUM_STATE))["leaderEpoch"] == 2
    assert not opened(files)[1]


@pytest.mark.parametrize(("noted", "epoch"), [(0, 2), (1, 2), (7, 8)])
def test_m11_an_epoch_is_above_all_that_were_ever_noted(noted: int, epoch: int) -> None:
    files = with_log(LOG)
    files.write_bytes(QUORUM_STATE, b'{"leaderId":3,"leaderEpoch":%d}' % noted)
    store, reports = opened(files)
    assert (store.log.epoch, reports) == (epoch, [])


def test_m12_a_broker_that_was_killed_need_not_be_waited_for() -> None:
    registration = RegisterBrokerRecord(
        broker_id=1, incarnation_id=topic_id(9), broker_epoch=9, end_points=[], features=[],
        rack=None, fenced=False, log_dirs=[uuid_of(IDENTITY.directory_id)],
    )  # fmt: skip
    files = with_log(LOG + batch(9, [registration]))
    store, reports = opened(files)
    assert sorted(store.image.topics) == ["t0", "t1", "t2"]
    assert not store.image.brokers[1].fenced
    assert reports == []


def test_m13_meta_properties_alone_are_a_fresh_start() -> None:
    files = blank()
    files.write_bytes(
        f"{PATH}/meta.properties", b"version=1\ncluster.id=dHJpZ2xvdC10ZXN0cy0wMQ\nnode.id=1\n"
    )
    directory = DataDirectory.take(files, PATH, node_id=1, new_uuid=lambda: topic_id(5))
    assert uuid_of(directory.identity.directory_id) == topic_id(5)
    store, _ = open_metadata(files, PATH, directory.identity, now_ms=lambda: NOW_MS)
    assert store.image.metadata_version == 21
    assert store.log.epoch == 1


# Whose it is


@pytest.mark.parametrize("state", [1, 2])
def test_a_cluster_that_moves_away_from_zookeeper_is_refused(state: int) -> None:
    migration = ZkMigrationStateRecord(zk_migration_state=state)
    assert "ZooKeeper" in refusal(with_log(LOG + batch(9, [migration])))
    done = ZkMigrationStateRecord(zk_migration_state=3)
    assert opened(with_log(LOG + batch(9, [migration, done])))[0].image.zk_migration == done


def test_partitions_that_other_nodes_keep_are_refused() -> None:
    other = [
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id(0), isr=isr, replicas=[1, 2], leader=isr[0]
        )
        for isr in ([2], [1, 2])
    ]
    for change in other:
        told = refusal(with_log(LOG + batch(9, [change])))
        assert "partition 0 of topic 't0'" in told
        assert "[1, 2]" in told

    alone = PartitionChangeRecord(partition_id=0, topic_id=topic_id(0), isr=[1], replicas=[1, 2])
    assert sorted(opened(with_log(LOG + batch(9, [alone])))[0].image.topics) == ["t0", "t1", "t2"]


def test_partitions_of_another_node_are_refused() -> None:
    files = with_log(LOG)
    with pytest.raises(DataDirectoryError, match="this node is 2"):
        opened(files, node_id=2)


def test_a_topic_with_a_partition_missing_is_refused() -> None:
    gap = [topic(3, 3)[0], *topic(3, 3)[2:]]
    assert "none with the number 0" in refusal(with_log(LOG + batch(9, gap)))


def voters(*ids: int) -> list[Any]:
    return [
        KRaftVersionRecord(k_raft_version=1),
        VotersRecord(
            voters=[
                VotersRecord.Voter(
                    voter_id=number,
                    voter_directory_id=uuid_of(IDENTITY.directory_id),
                    endpoints=[],
                    k_raft_version_feature=VotersRecord.Voter.KRaftVersionFeature(
                        min_supported_version=0, max_supported_version=1
                    ),
                )
                for number in ids
            ]
        ),
    ]


def with_voters(*ids: int) -> MemoryFilesystem:
    first = control_batch(voters(*ids), base_offset=9, epoch=1, timestamp_ms=NOW_MS)
    return with_log(LOG + bytes(first))


def test_a_log_that_others_vote_on_is_refused() -> None:
    for ids in ((2,), (1, 2), (2, 3, 4)):
        assert str(list(ids)) in refusal(with_voters(*ids))


def test_a_quorum_of_records_stays_one() -> None:
    files = with_voters(1)
    store, _ = opened(files)
    assert json.loads(files.read_bytes(QUORUM_STATE))["data_version"] == 1
    assert [type(one).__name__ for one in store.log.control_records()] == [
        "KRaftVersionRecord", "VotersRecord",
    ]  # fmt: skip

    work = store.log.begin_snapshot("x", now_ms=NOW_MS)
    work.run()
    again = load(files, PATH)
    assert again.snapshot == work.snapshot_id
    assert again.kraft_version == 1
    assert again.voters == voters(1)[1]


KAFKAS = sorted(path.parent.name for path in KAFKA_WRITTEN.glob("*/meta.properties"))


@pytest.mark.parametrize("name", KAFKAS)
def test_what_kafka_wrote_is_opened_led_and_opened_again(name: str, tmp_path: Path) -> None:
    path = shutil.copytree(KAFKA_WRITTEN / name, tmp_path / "data")
    identity = MetaProperties.decode((path / "meta.properties").read_bytes(), "")

    def start() -> MetadataStore:
        store, _ = open_metadata(DiskFilesystem(), str(path), identity, now_ms=lambda: NOW_MS)
        return store

    before = load(DiskFilesystem(), str(path)).image
    store = start()
    store.begin_epoch()

    for name, old in before.topics.items():
        for number, state in old.partitions.items():
            now = store.image.topics[name].partitions[number]
            assert (now.leader, now.leader_epoch) == (1, state.leader_epoch + 1)
            assert (now.isr, now.elr) == ((1,), ())
            level = store.image.metadata_version
            assert now.directories == ((uuid_of(identity.directory_id),) if level >= 17 else ())
    assert store.image.configs == before.configs
    assert store.image.scram_credentials == before.scram_credentials
    again = start()
    assert again.image.topics == store.image.topics
    assert again.log.epoch == store.log.epoch + 1
    assert list(again.image.records()) == list(store.image.records())


def test_topics_can_be_opened_by_whoever_needs_no_more() -> None:
    assert list(open_topics(with_log(LOG), PATH).image.topics) == ["t0", "t1", "t2"]


def test_a_log_without_the_record_of_its_first_leader_lacks_nothing() -> None:
    """Apache Kafka 4.3.1 serves such a log, and tools that write one by hand leave it out."""
    files = with_log(b"".join(BATCHES[1:]))
    for _ in range(2):
        store, _ = opened(files)

        assert [topic.name for topic in store.topics()] == ["t0", "t1", "t2"]
        assert load(files, PATH).start_offset == 0
        store.log.close()
