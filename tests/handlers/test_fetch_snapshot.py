"""FetchSnapshot on the controller's listener, versions 0 and 1.

What Apache Kafka 3.9.1 answers was looked up with the same requests. Where it cannot answer (every
error becomes UNKNOWN_SERVER_ERROR of the whole request, some requests end its process) the codes
are those of KIP-630 and storage.md 12.5.
"""

from __future__ import annotations

import errno
import select
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.handlers import fetch_snapshot as handler
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.registry import APIS
from storage.metadata.snapshots import Snapshots
from tests.support.caller import Caller
from tests.support.running_controller import HOST, RunningController
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.metadata.snapshots import SnapshotId

VERSIONS = range(2)
METADATA = "__cluster_metadata"
Asked = FetchSnapshotRequest.Topic.Partition
Piece = FetchSnapshotResponse.Topic.Partition


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningController]:
    with RunningController(tmp_path_factory.mktemp("node") / "data") as controller:
        controller.append(5)
        yield controller


@pytest.fixture(scope="module")
def snapshot_id(node: RunningController) -> SnapshotId:
    return node.take_snapshot()


@pytest.fixture(scope="module")
def content(node: RunningController, snapshot_id: SnapshotId) -> bytes:
    """The whole file."""
    file = node.controller.snapshots.open_to_read(snapshot_id)
    data = file.pread(file.size(), 0)
    file.close()
    return data


@pytest.fixture
def follower(node: RunningController) -> Iterator[Caller]:
    with node.connect() as caller:
        yield caller


def asking(
    wanted: tuple[int, int],
    *,
    epoch: int,
    position: int = 0,
    max_bytes: int = 1 << 20,
    topic: str = METADATA,
    partition: int = 0,
    partitions: int = 1,
    topics: int = 1,
    cluster_id: str | None = None,
    replica_id: int = -1,
) -> FetchSnapshotRequest:
    """A request for one piece, made in this epoch of the leader."""
    asked = [
        Asked(
            partition=partition,
            current_leader_epoch=epoch,
            snapshot_id=Asked.SnapshotId(end_offset=wanted[0], epoch=wanted[1]),
            position=position,
        )
        for _ in range(partitions)
    ]
    return FetchSnapshotRequest(
        replica_id=replica_id,
        max_bytes=max_bytes,
        topics=[FetchSnapshotRequest.Topic(name=topic, partitions=asked) for _ in range(topics)],
        cluster_id=cluster_id,
    )


def piece_of(answer: FetchSnapshotResponse) -> Piece:
    """The one partition of an answer that has no error of its own."""
    assert answer.error_code == 0
    ((piece,),) = [topic.partitions for topic in answer.topics]
    return piece


@pytest.mark.parametrize("version", VERSIONS)
def test_a_snapshot_comes_in_the_bytes_of_its_file(
    node: RunningController,
    follower: Caller,
    snapshot_id: SnapshotId,
    content: bytes,
    version: int,
) -> None:
    answer = follower.call(asking(snapshot_id, epoch=node.epoch), version)

    piece = piece_of(answer)
    assert answer.topics[0].name == METADATA
    assert (piece.index, piece.error_code, piece.position) == (0, 0, 0)
    assert (piece.snapshot_id.end_offset, piece.snapshot_id.epoch) == snapshot_id
    assert piece.size == len(content)
    assert bytes(piece.unaligned_records) == content
    assert (piece.current_leader.leader_id, piece.current_leader.leader_epoch) == (1, node.epoch)
    told = [(one.node_id, one.host, one.port) for one in answer.node_endpoints]
    assert told == ([(1, HOST, node.port)] if version >= 1 else [])


@pytest.mark.parametrize("max_bytes", [1, 7, 100])
def test_pieces_of_any_size_make_up_the_file(
    node: RunningController,
    follower: Caller,
    snapshot_id: SnapshotId,
    content: bytes,
    max_bytes: int,
) -> None:
    found = b""
    while len(found) < len(content):
        request = asking(snapshot_id, epoch=node.epoch, position=len(found), max_bytes=max_bytes)
        piece = piece_of(follower.call(request, 1))
        assert (piece.position, piece.size) == (len(found), len(content))
        assert len(piece.unaligned_records) == min(max_bytes, len(content) - len(found))
        found += bytes(piece.unaligned_records)

    assert found == content


def test_no_request_leaves_a_file_open(
    node: RunningController, snapshot_id: SnapshotId, content: bytes
) -> None:
    def open_files() -> int:
        found: int = node.run(lambda: len(list(Path("/proc/self/fd").iterdir())))
        return found

    with node.connect() as follower:
        follower.call(asking(snapshot_id, epoch=node.epoch), 1)
        before = open_files()
        for position in (0, len(content) - 1, len(content), -1):
            for max_bytes in (0, 10, 1 << 20):
                follower.call(
                    asking(snapshot_id, epoch=node.epoch, position=position, max_bytes=max_bytes), 1
                )

    assert open_files() <= before


def test_the_last_byte_can_be_asked_for(
    node: RunningController, follower: Caller, snapshot_id: SnapshotId, content: bytes
) -> None:
    last = len(content) - 1

    piece = piece_of(follower.call(asking(snapshot_id, epoch=node.epoch, position=last), 1))

    assert bytes(piece.unaligned_records) == content[-1:]


def test_no_bytes_are_wanted_and_none_come(
    node: RunningController, follower: Caller, snapshot_id: SnapshotId, content: bytes
) -> None:
    piece = piece_of(follower.call(asking(snapshot_id, epoch=node.epoch, max_bytes=0), 1))

    assert (piece.error_code, piece.size) == (0, len(content))
    assert bytes(piece.unaligned_records) == b""


def test_one_answer_holds_no_more_than_its_bound(
    node: RunningController,
    follower: Caller,
    snapshot_id: SnapshotId,
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handler, "PIECE_MAX_BYTES", 100)

    piece = piece_of(follower.call(asking(snapshot_id, epoch=node.epoch, max_bytes=2**31 - 1), 1))

    assert bytes(piece.unaligned_records) == content[:100]
    assert piece.size == len(content)


def test_a_large_snapshot_arrives_in_pieces_that_the_kernel_sends(tmp_path: Path) -> None:
    size = 3_000_000
    with RunningController(tmp_path / "data") as node:
        wanted = node.take_snapshot()
        path = tmp_path / "data" / "__cluster_metadata-0" / wanted.file_name
        path.chmod(0o600)
        content = bytes(number % 251 for number in range(1009)) * (size // 1009)
        path.write_bytes(content)
        found = b""
        with node.connect() as follower:
            while len(found) < len(content):
                request = asking(wanted, epoch=node.epoch, position=len(found), max_bytes=1 << 20)
                found += bytes(piece_of(follower.call(request, 1)).unaligned_records)

    assert found == content


def refused(node: RunningController, request: FetchSnapshotRequest, version: int) -> Piece:
    """The entry of an answer without bytes, which names the leader all the same."""
    with node.connect() as follower:
        answer = follower.call(request, version)
        assert follower.call(ApiVersionsRequest(), 0).error_code == 0
    piece = piece_of(answer)
    assert (piece.size, bytes(piece.unaligned_records)) == (0, b"")
    assert bool(answer.node_endpoints) == (
        version >= 1 and piece.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    return piece


def assert_names_the_leader(node: RunningController, piece: Piece) -> None:
    assert (piece.current_leader.leader_id, piece.current_leader.leader_epoch) == (1, node.epoch)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("changed", [(1, 0), (-1, 0), (0, 1), (0, -1), (2**62, 0)])
def test_a_snapshot_that_there_is_not_is_not_found(
    node: RunningController, snapshot_id: SnapshotId, version: int, changed: tuple[int, int]
) -> None:
    wanted = (snapshot_id.end_offset + changed[0], snapshot_id.epoch + changed[1])

    piece = refused(node, asking(wanted, epoch=node.epoch), version)

    assert piece.error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert (piece.snapshot_id.end_offset, piece.snapshot_id.epoch) == wanted
    assert_names_the_leader(node, piece)


@pytest.mark.parametrize("wanted", [(0, 0), (-1, -1)])
def test_what_a_new_cluster_begins_with_is_not_handed_out(
    node: RunningController, wanted: tuple[int, int]
) -> None:
    piece = refused(node, asking(wanted, epoch=node.epoch), 1)

    assert piece.error_code == ErrorCode.SNAPSHOT_NOT_FOUND


def test_a_snapshot_whose_file_has_gone_is_not_found(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as node:
        wanted = node.take_snapshot()
        (tmp_path / "data" / "__cluster_metadata-0" / wanted.file_name).unlink()

        piece = refused(node, asking(wanted, epoch=node.epoch), 1)

    assert piece.error_code == ErrorCode.SNAPSHOT_NOT_FOUND


def test_a_file_that_cannot_be_opened_is_a_storage_error(
    node: RunningController, snapshot_id: SnapshotId, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "made up")

    monkeypatch.setattr(Snapshots, "open_to_read", refuse)

    piece = refused(node, asking(snapshot_id, epoch=node.epoch), 1)

    assert piece.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert_names_the_leader(node, piece)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("position", [-1, -(2**63), 0, 1, 2**40, 2**63 - 1])
def test_a_position_outside_of_the_file_is_out_of_range(
    node: RunningController,
    snapshot_id: SnapshotId,
    content: bytes,
    version: int,
    position: int,
) -> None:
    position = position if position < 0 else min(position + len(content), 2**63 - 1)

    piece = refused(node, asking(snapshot_id, epoch=node.epoch, position=position), version)

    assert piece.error_code == ErrorCode.POSITION_OUT_OF_RANGE
    assert piece.position == position
    assert_names_the_leader(node, piece)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (-1, ErrorCode.FENCED_LEADER_EPOCH),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_request_of_another_epoch_is_told_the_present_one(
    node: RunningController, snapshot_id: SnapshotId, version: int, change: int, code: ErrorCode
) -> None:
    piece = refused(node, asking(snapshot_id, epoch=node.epoch + change), version)

    assert piece.error_code == code
    assert_names_the_leader(node, piece)


def test_an_epoch_that_is_not_known_is_an_old_one(
    node: RunningController, snapshot_id: SnapshotId
) -> None:
    piece = refused(node, asking(snapshot_id, epoch=-1), 1)

    assert piece.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_the_epoch_is_looked_at_before_the_snapshot(node: RunningController) -> None:
    piece = refused(node, asking((99, 99), epoch=node.epoch - 1, position=-1), 1)

    assert piece.error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_that_does_not_lead_says_who_does(tmp_path: Path, version: int) -> None:
    with RunningController(tmp_path / "data") as node:
        wanted = node.take_snapshot()
        node.run(lambda: setattr(node.controller, "leader_id", 7))
        with node.connect() as follower:
            answer = follower.call(asking(wanted, epoch=node.epoch), version)

    piece = piece_of(answer)
    assert piece.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (piece.current_leader.leader_id, piece.current_leader.leader_epoch) == (7, node.epoch)
    assert answer.node_endpoints == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("other", [{"topic": "orders"}, {"topic": ""}, {"partition": 1}])
def test_another_topic_or_partition_is_unknown(
    node: RunningController, snapshot_id: SnapshotId, version: int, other: dict[str, Any]
) -> None:
    request = asking(snapshot_id, epoch=node.epoch, **other)

    piece = refused(node, request, version)

    assert piece.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert piece.index == other.get("partition", 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "shape",
    [
        {"topics": 0},
        {"topics": 2},
        {"partitions": 0},
        {"partitions": 2},
        {"max_bytes": -1},
        {"max_bytes": -(2**31)},
        {"replica_id": 1},
    ],
)
def test_anything_but_one_partition_is_an_invalid_request(
    node: RunningController,
    follower: Caller,
    snapshot_id: SnapshotId,
    version: int,
    shape: dict[str, Any],
) -> None:
    request = asking(snapshot_id, epoch=node.epoch, **shape)

    answer = follower.call(request, version)

    assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_for_another_cluster_is_refused_before_anything_else(
    node: RunningController, follower: Caller, snapshot_id: SnapshotId, version: int
) -> None:
    wrong = asking(snapshot_id, epoch=node.epoch, cluster_id="wrong", topic="orders", topics=2)
    right = asking(
        snapshot_id, epoch=node.epoch, cluster_id=node.broker.directory.identity.cluster_id
    )

    answer = follower.call(wrong, version)

    assert (answer.error_code, answer.topics) == (ErrorCode.INCONSISTENT_CLUSTER_ID, [])
    assert piece_of(follower.call(right, version)).error_code == 0


def test_clients_are_not_offered_it(node: RunningController, snapshot_id: SnapshotId) -> None:
    with node.connect_as_client() as client:
        offered = {one.api_key for one in client.call(ApiVersionsRequest(), 0).api_keys}
        with pytest.raises(ConnectionClosed):
            client.call(asking(snapshot_id, epoch=node.epoch), 1)

    assert APIS[59].key not in offered
    with node.connect() as follower:
        assert 59 in {one.api_key for one in follower.call(ApiVersionsRequest(), 0).api_keys}


def test_a_piece_on_its_way_is_sent_to_the_end_though_the_snapshot_is_removed(
    tmp_path: Path,
) -> None:
    size = 8 << 20
    with RunningController(tmp_path / "data") as node:
        wanted = node.take_snapshot()
        path = tmp_path / "data" / "__cluster_metadata-0" / wanted.file_name
        path.chmod(0o600)
        path.write_bytes(bytes(range(256)) * (size // 256))
        with node.connect() as follower:
            sent = follower.send(asking(wanted, epoch=node.epoch, max_bytes=size), 1)
            # The socket's buffers hold a part of it; nobody reads the rest yet.
            assert select.select([follower.socket], [], [], 10)[0]

            def remove() -> None:
                snapshots = node.controller.snapshots
                snapshots.remove_removed(snapshots.remove(wanted))

            node.run(remove)
            piece = piece_of(follower.receive(APIS[59], 1, sent))

    assert bytes(piece.unaligned_records) == bytes(range(256)) * (size // 256)


def test_who_loads_a_snapshot_is_counted_among_those_who_follow(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as node:
        wanted = node.take_snapshot()
        node.append(3)
        with node.connect() as follower:
            for replica_id in (-1, 5):
                request = asking(wanted, epoch=node.epoch, max_bytes=10, replica_id=replica_id)
                assert piece_of(follower.call(request, 1)).error_code == 0

        (observer,) = node.run(lambda: node.controller.observers.live(node.broker.now_ms()))

    assert (observer.replica_id, observer.directory_id) == (5, bytes(16))
    assert (observer.log_end_offset, observer.replicated_offset) == (-1, wanted.end_offset)
