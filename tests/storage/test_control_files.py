"""The small text files: Apache Kafka's bytes, and what is refused."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.crc import crc32c
from storage.checkpoints import (
    CheckpointFile,
    as_written,
    decode_offsets,
    encode_clean_shutdown,
    encode_offsets,
)
from storage.clean_state import CleanState, CleanStop
from storage.epochs import LeaderEpochs
from storage.errors import MalformedFile
from storage.identity import (
    MetaProperties,
    decode_partition_metadata,
    encode_partition_metadata,
    new_directory_id,
    uuid_of,
    uuid_text,
)
from storage.layout import (
    deleted_directory,
    file_name,
    is_deleted_directory,
    offset_of,
    partition_of,
)
from tests.support.memory_filesystem import MemoryFilesystem

TOPIC_ID = "nRMOekHIQQeeynIFtdFb-Q"


def test_offset_checkpoints_are_kafkas() -> None:
    assert encode_offsets({}) == b"0\n1\n#crc32c 0 0957751413\n"
    assert encode_offsets({("cmp", 0): 10}) == b"0\n2\ncmp 0 10\n#crc32c 0 1346373844\n"
    text = b"0\n3\norders 0 20\norders 1  20\n__consumer_offsets\t42 3\n"
    assert decode_offsets(text, "x") == {
        ("orders", 0): 20,
        ("orders", 1): 20,
        ("__consumer_offsets", 42): 3,
    }
    assert decode_offsets(b"", "x") == {}


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True), st.integers(0, 2**31)),
        st.integers(0, 2**63 - 1),
    )
)
def test_offset_checkpoints_come_back(offsets: dict[tuple[str, int], int]) -> None:
    assert decode_offsets(encode_offsets(offsets), "x") == offsets


def test_a_checkpoint_with_a_wrong_bit_says_what_it_said_before() -> None:
    offsets = {("orders", 0): 27, ("orders", 1): 9, ("sales", 0): 2**40}
    data = encode_offsets(offsets)

    for position in range(len(data)):
        for bit in range(8):
            spoilt = bytearray(data)
            spoilt[position] ^= 1 << bit
            assert as_written(bytes(spoilt), "x") == data, (position, bit)


def test_a_checkpoint_with_more_wrong_than_a_bit_is_refused() -> None:
    data = encode_offsets({("orders", 0): 27})

    with pytest.raises(MalformedFile, match=r"^some/path: the checksum is \d+, the content has"):
        as_written(data.replace(b"27", b"34"), "some/path")


def test_a_checkpoint_without_a_checksum_is_taken_as_it_is() -> None:
    text = b"0\n1\norders 0 20\n"

    assert as_written(text, "x") == text, "Apache Kafka wrote it, or an earlier release"


@pytest.mark.parametrize(
    "text",
    [
        b"1\n0\n", b"0\n", b"0\n2\na 0 1\n", b"0\n0\na 0 1\n", b"0\nx\n", b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n", b"0\n1\na 0 one\n", b"0\n1\na b 1\n", b"\xff\xfe", b"zero\n0\n",
        b"0\n1\na 0 99999999999999999999\n",
    ],
)  # fmt: skip
def test_a_malformed_checkpoint_is_refused_by_name(text: bytes) -> None:
    with pytest.raises(MalformedFile, match=r"^some/path: "):
        decode_offsets(text, "some/path")


def test_a_late_writer_does_not_put_old_offsets_over_new_ones() -> None:
    files = MemoryFilesystem()
    files.make_dir("/d")
    checkpoint = CheckpointFile(files, "/d/log-start-offset-checkpoint")
    older, newer = checkpoint.holding({("t", 0): 1}), checkpoint.holding({("t", 0): 2})

    newer.sync()
    older.sync()

    assert files.read_bytes("/d/log-start-offset-checkpoint") == encode_offsets({("t", 0): 2})
    before = len(files.calls)
    checkpoint.holding({("t", 0): 2}).sync()
    assert len(files.calls) == before, "the same content is not written again"


def test_the_clean_shutdown_marker_is_kafkas() -> None:
    assert encode_clean_shutdown(7) == b'{"version":0,"brokerEpoch":7}'


def test_the_state_of_a_clean_stop_comes_back() -> None:
    state = CleanState(20, 1000, 16, 24, "00000000000000000020.snapshot", 12, [0, 12])

    again = CleanStop.decode(CleanStop({"orders-0": state}, {"orders": TOPIC_ID}).encode())

    assert {name: state.as_list() for name, state in again.states.items()} == {
        "orders-0": [20, 1000, 16, 24, "00000000000000000020.snapshot", 12, [0, 12]]
    }
    assert again.topic_ids == {"orders": TOPIC_ID}


def test_the_state_that_an_older_version_noted_is_read() -> None:
    partitions = {"orders-0": [20, 1000, 16, 24, "00000000000000000020.snapshot", [0, 12]]}
    crc = crc32c(json.dumps(partitions).encode())

    stops = [
        CleanStop.decode(json.dumps(content | {"partitions": partitions}).encode())
        for content in ({"version": 1}, {"version": 2, "crc": crc})
    ]

    for stop in stops:
        assert stop.states["orders-0"].as_list() == [*partitions["orders-0"][:5], -1, [0, 12]]
        assert stop.topic_ids == {}


def test_partition_metadata_is_kafkas() -> None:
    data = b"version: 0\ntopic_id: " + TOPIC_ID.encode()
    topic_id = uuid_of(TOPIC_ID)

    assert len(data) == 43
    assert encode_partition_metadata(topic_id) == data
    assert decode_partition_metadata(data, "x") == topic_id
    assert decode_partition_metadata(data + b"\n", "x") == topic_id
    assert decode_partition_metadata(data + b"==", "x") == topic_id, "with base64's padding"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"version: 0\n", b"topic_id: nRMOekHIQQeeynIFtdFb-Q", b"version: 0\ntopic_id: short",
        b"version: -1\ntopic_id: nRMOekHIQQeeynIFtdFb-Q", b"version:0\ntopic_id: x",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"\xff\xff",
        b"version: 0\ntopic_id: nRMOekHIQQeeynIFtdFb!Q",
    ],
)  # fmt: skip
def test_malformed_partition_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedFile):
        decode_partition_metadata(data, "x")


@given(st.binary(min_size=16, max_size=16))
def test_ids_are_printed_as_kafka_prints_them(raw: bytes) -> None:
    text = uuid_text(raw)

    assert len(text) == 22
    assert uuid_of(text) == raw


def test_a_directory_id_is_not_reserved_and_does_not_look_like_an_option() -> None:
    ids = iter([bytes(16), bytes(15) + b"\x63", b"\xf8" + bytes(15), b"\x01" * 16])

    assert new_directory_id(lambda: next(ids)) == uuid_text(b"\x01" * 16)


def test_meta_properties_of_kafka_are_read() -> None:
    data = (
        b"#\n#Fri Nov 20 10:35:02 UTC 2026\nnode.id=1\n"
        b"directory.id=Bq6Z1VEEY_UKSKML5ZwgmA\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    )

    found = MetaProperties.decode(data, "x")

    assert (found.node_id, found.cluster_id) == (1, "MkU3OEVBNTcwNTJENDM2Qg")
    assert found.directory_id == "Bq6Z1VEEY_UKSKML5ZwgmA"
    again = MetaProperties.decode(found.encode(), "x")
    assert (again.node_id, again.directory_id) == (1, found.directory_id)


def test_meta_properties_in_javas_other_spellings_are_read() -> None:
    data = b"! a comment\n\nversion : 1\n  node.id 3\ncluster.id=a\\:b\nunknown=\n"

    found = MetaProperties.decode(data, "x")

    assert (found.node_id, found.cluster_id, found.directory_id) == (3, "a:b", "")


@pytest.mark.parametrize("written", [TOPIC_ID, f"{TOPIC_ID}\\=\\=", f"{TOPIC_ID}=="])
def test_a_directory_id_is_read_with_and_without_padding(written: str) -> None:
    data = f"version=1\nnode.id=1\ncluster.id=c\ndirectory.id={written}\n".encode()

    assert MetaProperties.decode(data, "x").directory_id == TOPIC_ID


def test_meta_properties_in_javas_rarer_spellings_are_read() -> None:
    data = b"version=1\r\nnode.id=\\\r\n   7\rcluster.id=caf\xe9\\u0021\n"

    found = MetaProperties.decode(data, "x")

    assert (found.node_id, found.cluster_id) == (7, "caf\u00e9!")


def test_meta_properties_of_an_old_broker_are_read() -> None:
    found = MetaProperties.decode(b"version=0\nbroker.id=5\ncluster.id=c\n", "x")

    assert (found.node_id, found.cluster_id) == (5, "c")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"version=2\nnode.id=1\ncluster.id=c", b"version=1\nnode.id=one\ncluster.id=c",
        b"version=1\nnode.id=1", b"version=1\ncluster.id=c", b"\xff", b"\\u12",
        b"version=1\nnode.id=1\ncluster.id=c\ndirectory.id=short",
        b"version=1\nnode.id=1\ncluster.id=c\ndirectory.id=nRMOekHIQQeeynIFtdFb!Q",
        b"version=1\nnode.id=1\ncluster.id=c\ndirectory.id=nRMOekHIQQeeynIFtdFb-Q=",
    ],
)  # fmt: skip
def test_malformed_meta_properties_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedFile):
        MetaProperties.decode(data, "x")


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


def test_the_leader_epoch_checkpoint_is_kafkas() -> None:
    assert LeaderEpochs().encode() == b"0\n0\n"
    assert re.sub(rb"[ \t]+", b" ", epochs_of((0, 0), (5, 20)).encode()) == b"0\n2\n0 0\n5 20\n"
    assert LeaderEpochs.decode(b"0\n2\n0 0\n5 20\n", "x").entries() == [(0, 0), (5, 20)]
    for data in (b"0\n2\n5 0\n4 9\n", b"0\n2\n5 9\n6 8\n", b"0\n1\n5\n", b"0\n1\n5 x\n"):
        with pytest.raises(MalformedFile):
            LeaderEpochs.decode(data, "x")


def test_a_leader_epoch_checkpoint_with_a_wrong_bit_never_tells_other_epochs() -> None:
    epochs = epochs_of((0, 0), (1, 12), (5, 20))
    data = epochs.encode()

    for position in range(len(data)):
        for bit in range(8):
            spoilt = bytearray(data)
            spoilt[position] ^= 1 << bit
            try:
                read = LeaderEpochs.decode(bytes(spoilt), "x")
            except MalformedFile:
                blanks = data.index(b"5") + 1
                assert blanks - 1 <= position <= blanks + 32, "else the checksum is whole"
            else:
                assert read.entries() == epochs.entries(), (position, bit)


def test_a_leader_epoch_checkpoint_with_more_wrong_than_a_bit_is_refused() -> None:
    data = epochs_of((0, 0), (5, 27)).encode()

    with pytest.raises(MalformedFile, match=r"^some/path: the checksum is \d+, the content has"):
        LeaderEpochs.decode(data.replace(b"27", b"34"), "some/path")


@pytest.mark.parametrize(
    ("epoch", "start", "expected"),
    [
        (5, 30, [(2, 0), (5, 10)]),  # the same epoch goes on
        (6, 30, [(2, 0), (5, 10), (6, 30)]),
        (6, 10, [(2, 0), (6, 10)]),  # the one before it had no batches
        (6, 4, [(2, 0), (6, 4)]),
        (3, 30, [(2, 0), (3, 30)]),  # a higher epoch cannot have been before
        (1, 0, [(1, 0)]),
    ],
)
def test_a_new_epoch_drops_what_contradicts_it(
    epoch: int, start: int, expected: list[tuple[int, int]]
) -> None:
    epochs = epochs_of((2, 0), (5, 10))

    changed = epochs.assign(epoch, start)

    assert epochs.entries() == expected
    assert changed == (epoch != 5)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (-1, (-1, -1)), (0, (0, 0)), (1, (1, 0)), (2, (2, 10)), (3, (2, 10)), (4, (2, 10)),
        (5, (5, 20)), (6, (6, 25)), (7, (6, 30)), (8, (8, 30)), (9, (-1, -1)),
    ],
)  # fmt: skip
def test_where_an_epoch_ended(asked: int, expected: tuple[int, int]) -> None:
    epochs = epochs_of((2, 0), (5, 10), (6, 20))
    answer = epochs.end_offset_for(asked, log_end=30, leading=8)
    if asked == 6:
        expected = (6, 30)

    assert answer == expected


def test_epochs_are_cut_with_the_log() -> None:
    at_end = epochs_of((2, 0), (5, 10), (6, 20))
    assert at_end.cut_end(20)
    assert at_end.entries() == [(2, 0), (5, 10)]
    assert not at_end.cut_end(20)

    at_start = epochs_of((2, 0), (5, 10), (6, 20))
    assert at_start.cut_start(15)
    assert at_start.entries() == [(5, 15), (6, 20)]
    assert not at_start.cut_start(15)
    assert [at_start.epoch_of(offset) for offset in (14, 15, 19, 20)] == [-1, 5, 5, 6]


def test_names_are_kafkas() -> None:
    assert file_name(5, ".log") == "00000000000000000005.log"
    assert offset_of("00000000000000000005.log", ".log") == 5
    for name in ("5.log", "0000000000000000000x.log", "00000000000000000005.index", "x.log",
                 "\u0660" * 20 + ".log", "99999999999999999999.log"):  # fmt: skip
        assert offset_of(name, ".log") is None
    assert partition_of("a-b-3") == ("a-b", 3)
    for name in ("a", "-3", "a-", "a-x", "a--", "lost+found", "a-\u0663"):
        assert partition_of(name) is None


def test_the_name_of_a_deleted_partition_is_never_too_long() -> None:
    for topic in ("a", "t" * 249):
        name = deleted_directory(topic, 12, "0123456789abcdef" * 2)
        assert len(name) <= 255
        assert is_deleted_directory(name)
        assert name.startswith(topic[:200])
    assert not is_deleted_directory("orders-delete")
    assert not is_deleted_directory("orders-0")
