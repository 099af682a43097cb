"""`triglot groups` as a user types it, and what it says to servers that are not as one hopes."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from broker.clock import ms_of_text, utc_text
from client.connection import Connection
from client.errors import ConnectionLost
from protocol.client import said
from protocol.messages.describe_groups import DescribeGroupsResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.list_groups import ListGroupsResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.metadata import MetadataResponse
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.records.legacy import build_messages
from tests.support.scripted_broker import RawServer, ScriptedBroker
from tools.cli import main
from tools.cluster import TopicPartition
from tools.groups.show import partitions_text
from tools.printing import table
from tools.times import duration_ms, moment_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

METADATA, LIST_OFFSETS, FETCH, COMMIT, OFFSET_FETCH, COORDINATOR = 3, 2, 1, 8, 9, 10
DESCRIBE, LIST = 15, 16

KAFKA_0_11 = {
    METADATA: (0, 4),
    LIST_OFFSETS: (0, 2),
    FETCH: (0, 5),
    COMMIT: (0, 3),
    OFFSET_FETCH: (0, 3),
    COORDINATOR: (0, 1),
    DESCRIBE: (0, 1),
    LIST: (0, 1),
}

LOADING, NOT_COORDINATOR, UNKNOWN_MEMBER_ID = 14, 16, 25


def run(*arguments: str) -> int:
    return main(["groups", *arguments])


def exit_code(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    return ended.value.code


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["reset", "g", "--to-latest"], "--topic --all-topics"),
        (["reset", "g", "--all-topics"], "--to-earliest"),
        (["reset", "g", "--all-topics", "--topic", "t", "--to-latest"], "not allowed with"),
        (["reset", "g", "--all-topics", "--to-latest", "--shift", "1"], "not allowed with"),
        (["reset", "g", "--topic", "t:x", "--to-latest"], "wanted TOPIC or TOPIC:0,3"),
        (["reset", "g", "--all-topics", "--to-time", "soon"], "wanted a time such as"),
        (["reset", "g", "--all-topics", "--by-duration", "1 h"], "wanted a duration such as"),
        (["reset", "g", "--all-topics", "--to-offset", "-1"], "wanted a whole number from 0 on"),
        (["list", "--bootstrap", "localhost"], "wanted HOST:PORT, found 'localhost'"),
        (["list", "--bootstrap", "localhost:0"], "wanted HOST:PORT"),
        (["list", "--timeout", "0"], "wanted a number of seconds above 0"),
        (["list", "--type", "streams"], "invalid choice"),
        (["describe"], "GROUP"),
        ([], "ACTION"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    wrong: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*wrong) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1h30m", 5_400_000),
        ("90s", 90_000),
        ("500ms", 500),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("PT1H", 3_600_000),
        ("PT1H30M", 5_400_000),
        ("P1DT12H", 129_600_000),
        ("PT0.5S", 500),
        ("pt1h", 3_600_000),
        ("P1W", 604_800_000),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "1", "h", "P", "PT", "1h 30m", "-1h", "P1M", "P1Y", "1x"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wanted a duration"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T12:00:00", 1_769_860_800_000),
        ("2026-01-31T14:00:00.250+02:00", 1_769_860_800_250),
        ("2026-01-31", 1_769_817_600_000),
        ("1769860800000", 1_769_860_800_000),
    ],
)
def test_times_are_utc_unless_they_name_a_zone(text: str, ms: int) -> None:
    assert moment_ms(text) == ms


def test_a_time_is_written_as_it_can_be_read() -> None:
    assert utc_text(1_769_860_800_250) == "2026-01-31T12:00:00.250Z"
    assert ms_of_text(utc_text(1_769_860_800_250)) == 1_769_860_800_250
    assert utc_text(-1) == "1969-12-31T23:59:59.999Z"
    assert utc_text(2**62) == f"{2**62} ms"


def test_columns_are_aligned_and_empty_ones_left_out() -> None:
    assert table(("NAME", "EMPTY", "LAG"), [("a", None, 5), ("longer", "", 1234)]) == [
        "NAME     LAG",
        "a          5",
        "longer  1234",
    ]


def test_neighbouring_partitions_are_a_range() -> None:
    places = [TopicPartition("orders", p) for p in (0, 1, 2, 7)] + [TopicPartition("users", 3)]
    assert partitions_text(places) == "orders 0-2,7; users 3"


def closes(connection: socket.socket) -> None:
    connection.recv(1)


def speaks_http(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def answers_somebody_else(connection: socket.socket) -> None:
    connection.recv(4096)
    no_versions = b"\x00\x00" + b"\x01" + b"\x00\x00\x00\x00" + b"\x00"
    connection.sendall(b"\x00\x00\x00\x0c" + b"\x7f" * 4 + no_versions)


def answers_nonsense(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x00\x00\x00\x08" + b"\x00\x00\x00\x01" + b"\x00\x00\x7f\xff")


def is_silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def claims_much(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x7f\xff\xff\xff")
    is_silent(connection)


@pytest.mark.parametrize(
    "serve", [closes, speaks_http, answers_somebody_else, answers_nonsense, claims_much]
)
def test_what_is_no_broker_is_one_sentence_and_exit_code_1(
    serve: Callable[[socket.socket], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with RawServer(serve) as server:
        assert run("list", "--bootstrap", server.bootstrap) == 1
    assert capsys.readouterr().err == (
        f"triglot: what answers at {server.bootstrap} is not a Kafka broker that can be asked "
        "(security.protocol is PLAINTEXT)\n"
    )


def test_a_server_that_says_nothing_is_left_after_the_timeout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with RawServer(is_silent) as server:
        assert run("list", "--bootstrap", server.bootstrap, "--timeout", "0.2") == 1
    wanted = f"triglot: no answer from {server.bootstrap} to ApiVersions within 0.2 s\n"
    assert capsys.readouterr().err == wanted


def dribbles(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x00\x00\x10\x00")
    while True:
        connection.sendall(b"\x00")
        time.sleep(0.05)


def test_a_server_that_dribbles_is_left_after_the_timeout() -> None:
    with (
        RawServer(dribbles) as server,
        pytest.raises(ConnectionLost, match=r"no answer from .* within 0\.3 s"),
    ):
        Connection(server.host, server.port, timeout_s=0.3)


def test_where_nobody_listens_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert run("list", "--bootstrap", f"127.0.0.1:{port}") == 1
    wanted = f"triglot: cannot connect to 127.0.0.1:{port}: connection refused\n"
    assert capsys.readouterr().err == wanted
    assert run("list", "--bootstrap", "a..b:9092") == 1
    wanted = "triglot: cannot connect to a..b:9092: no host can have that name\n"
    assert capsys.readouterr().err == wanted


class OldCluster:
    """One broker of 0.11 with a topic of one record of format 0, and a group that lags behind."""

    def __init__(self, *, coordinator_codes: tuple[int, ...] = (), commit_code: int = 0) -> None:
        self.coordinator_codes = list(coordinator_codes)
        self.commit_code = commit_code
        self.broker = ScriptedBroker(
            {
                METADATA: self.metadata,
                COORDINATOR: self.coordinator,
                DESCRIBE: lambda _: DescribeGroupsResponse(groups=[self.described()]),
                OFFSET_FETCH: self.offsets,
                LIST_OFFSETS: self.bounds,
                FETCH: self.fetched,
                COMMIT: self.committed,
                LIST: self.listed,
            },
            KAFKA_0_11,
            api_versions=1,
        )
        self.advertised_port = self.broker.port
        self.state = "Empty"
        self.has_offsets = True
        self.held_back = 0

    def versions(self) -> dict[int, int]:
        """The version of each API that was asked."""
        return {key: version for key, version, _ in self.broker.asked}

    def metadata(self, _: Any) -> MetadataResponse:
        topic = MetadataResponse.Topic
        return MetadataResponse(
            brokers=[
                MetadataResponse.Broker(node_id=1, host=self.broker.host, port=self.advertised_port)
            ],
            topics=[
                topic(
                    error_code=0,
                    name="orders",
                    partitions=[
                        topic.Partition(
                            error_code=0,
                            partition_index=0,
                            leader_id=1,
                            replica_nodes=[1],
                            isr_nodes=[1],
                        )
                    ],
                )
            ],
        )

    def coordinator(self, _: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            node_id=1, host=self.broker.host, port=self.advertised_port, coordinators=[]
        )

    def code(self) -> int:
        return self.coordinator_codes.pop(0) if self.coordinator_codes else 0

    def listed(self, _: Any) -> ListGroupsResponse:
        group = ListGroupsResponse.Group(group_id="g", protocol_type="consumer")
        return ListGroupsResponse(error_code=self.code(), groups=[group])

    def described(self) -> DescribeGroupsResponse.Group:
        return DescribeGroupsResponse.Group(
            error_code=self.code(),
            group_id="g",
            group_state=self.state,
            protocol_type="consumer",
            protocol_data="",
            members=[],
        )

    def offsets(self, _: Any) -> OffsetFetchResponse:
        if not self.has_offsets:
            return OffsetFetchResponse(topics=[])
        topic = OffsetFetchResponse.Topic
        entry = topic.Partition(
            partition_index=0, committed_offset=3, metadata="note", error_code=0
        )
        return OffsetFetchResponse(topics=[topic(name="orders", partitions=[entry])])

    def bounds(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        end = request.topics[0].partitions[0].timestamp == -1
        topic = ListOffsetsResponse.Topic
        entry = topic.Partition(partition_index=0, error_code=0, offset=4 if end else 0)
        return ListOffsetsResponse(topics=[topic(name="orders", partitions=[entry])])

    def fetched(self, request: FetchRequest) -> FetchResponse:
        assert request.topics[0].partitions[0].fetch_offset == 3
        if self.held_back:
            self.held_back -= 1
            return FetchResponse(throttle_time_ms=50, responses=[])
        message = bytearray(build_messages([(0, None, b"value", ())], magic=0))
        message[7] = 3
        topic = FetchResponse.Topic
        entry = topic.Partition(
            partition_index=0, error_code=0, high_watermark=4, records=bytes(message)
        )
        return FetchResponse(responses=[topic(topic="orders", partitions=[entry])])

    def committed(self, _: Any) -> OffsetCommitResponse:
        topic = OffsetCommitResponse.Topic
        entry = topic.Partition(partition_index=0, error_code=self.commit_code)
        return OffsetCommitResponse(topics=[topic(name="orders", partitions=[entry])])


@pytest.fixture
def old() -> Iterator[OldCluster]:
    cluster = OldCluster()
    with cluster.broker:
        yield cluster


def test_a_broker_of_2017_is_asked_in_its_own_versions(
    old: OldCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("describe", "g", "--json", "--bootstrap", old.broker.bootstrap) == 0
    answer = json.loads(capsys.readouterr().out)
    (row,) = answer["partitions"]
    assert (row["committed"], row["lag"], row["lag_seconds"]) == (3, 1, None)
    assert row["notes"] == ["the next record is stored without a timestamp (format 0)"]
    assert old.versions() == {
        COORDINATOR: 1,
        DESCRIBE: 1,
        OFFSET_FETCH: 3,
        METADATA: 4,
        LIST_OFFSETS: 2,
        FETCH: 5,
    }


def test_a_quota_that_holds_records_back_is_waited_for(
    old: OldCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    old.held_back = 2
    assert run("describe", "g", "--json", "--bootstrap", old.broker.bootstrap) == 0
    (row,) = json.loads(capsys.readouterr().out)["partitions"]
    assert row["notes"] == ["the next record is stored without a timestamp (format 0)"]


def test_a_group_that_an_old_broker_calls_dead_does_not_exist_unless_it_has_offsets(
    old: OldCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    old.state = "Dead"
    assert run("describe", "g", "--bootstrap", old.broker.bootstrap) == 0
    old.has_offsets = False
    assert run("describe", "g", "--bootstrap", old.broker.bootstrap) == 1
    assert capsys.readouterr().err == "triglot: there is no group 'g'\n"


def test_what_an_old_broker_does_not_tell_cannot_be_filtered_by(
    old: OldCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("list", "--bootstrap", old.broker.bootstrap) == 0
    assert capsys.readouterr().out.split() == ["GROUP", "PROTOCOL", "g", "consumer"]
    assert run("list", "--state", "Stable", "--bootstrap", old.broker.bootstrap) == 1
    assert run("list", "--type", "classic", "--bootstrap", old.broker.bootstrap) == 1
    states, types = capsys.readouterr().err.splitlines()
    assert "does not tell the states of groups (Kafka 2.6 is the first)" in states
    assert "does not tell the types of groups (Kafka 3.8 is the first)" in types


def test_a_request_that_the_broker_does_not_know_is_one_sentence(
    old: OldCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("delete", "g", "--execute", "--bootstrap", old.broker.bootstrap) == 1
    assert capsys.readouterr().err == (
        f"triglot: {old.broker.bootstrap} speaks no version of DeleteGroups, wanted one of 0 to 3\n"
    )


def test_a_coordinator_that_is_still_loading_is_asked_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = OldCluster(coordinator_codes=(LOADING, NOT_COORDINATOR))
    with cluster.broker:
        assert run("describe", "g", "--bootstrap", cluster.broker.bootstrap) == 0
    assert [key for key, _, _ in cluster.broker.asked].count(DESCRIBE) == 3


def test_a_list_waits_for_a_broker_that_is_still_loading(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = OldCluster(coordinator_codes=(LOADING,))
    with cluster.broker:
        assert run("list", "--bootstrap", cluster.broker.bootstrap) == 0
    assert capsys.readouterr().out.split()[-2:] == ["g", "consumer"]


def test_an_address_that_the_broker_advertises_and_nobody_reaches_is_named_with_its_source(
    old: OldCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        old.advertised_port = taken.getsockname()[1]
    assert run("describe", "g", "--bootstrap", old.broker.bootstrap) == 1
    assert capsys.readouterr().err == (
        f"triglot: cannot connect to 127.0.0.1:{old.advertised_port}: connection refused; "
        f"{old.broker.bootstrap} named that address\n"
    )


def test_a_coordinator_that_goes_on_loading_is_named_at_the_timeout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = OldCluster(coordinator_codes=(LOADING,) * 1000)
    with cluster.broker:
        arguments = ("--timeout", "0.3", "--bootstrap", cluster.broker.bootstrap)
        assert run("describe", "g", *arguments) == 1
    assert "group 'g': COORDINATOR_LOAD_IN_PROGRESS (14)" in capsys.readouterr().err


def test_a_member_that_joins_between_plan_and_commit_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = OldCluster(commit_code=UNKNOWN_MEMBER_ID)
    with cluster.broker:
        arguments = ("--to-earliest", "--execute", "--bootstrap", cluster.broker.bootstrap)
        assert run("reset", "g", "--all-topics", *arguments) == 1
    out, err = capsys.readouterr()
    assert err == "triglot: group 'g' got members meanwhile; no offset was changed\n"
    assert out == ""


def test_a_reset_is_one_commit(old: OldCluster, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--to-earliest", "--bootstrap", old.broker.bootstrap)
    assert run("reset", "g", "--all-topics", *arguments) == 0
    assert COMMIT not in old.versions()
    assert run("reset", "g", "--all-topics", "--execute", *arguments) == 0
    (request,) = [request for key, _, request in old.broker.asked if key == COMMIT]
    assert "committed_offset=0" in repr(request)
    assert "generation_id_or_member_epoch=-1" in repr(request)


def test_codes_are_told_in_words_also_those_of_the_future() -> None:
    assert said(16).startswith("NOT_COORDINATOR (16): ")
    assert said(9999) == "error 9999, which is not known here"
