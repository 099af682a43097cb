"""A broker that answers as another release of Apache Kafka (as.version)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from broker.network.dispatch import HANDLERS
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata import MetadataRequest
from protocol.registry import APIS
from protocol.releases import Release
from tests.support.broker_changes import DELETE, SET, alter, delete_all, set_all
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.old_sets import magics, message, seen
from tests.support.secured import USERS, SecuredBroker, authenticate, send_token, shake
from tests.support.server_process import free_port
from tests.support.wire_client import ConnectionClosed, WireClient
from tests.support.zstd_fetches import BEHIND, CONFIGURED, GIVEN, fill, met

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LISTENERS = {"PLAINTEXT": "2.8", "OLD": "0.10.2", "NEW": "4.1", "OLDEST": "0.9"}
CLIENT_IDS = {"legacy": "1.1", "modern": "4.4", "ancient": "0.8.2"}
MODERN = "modern"
ONLY_ERROR_35 = bytes.fromhex("0000000a 00000001 0023 00000000")
WITH_THE_RANGE_OF_2_8 = bytes.fromhex("00000010 00000001 0023 00000001 0012 0000 0003")


class Rehearsal(BrokerProcess):
    """A broker whose listeners answer as different releases."""

    def __init__(self, folder: Path) -> None:
        self.ports = {name: free_port() for name in LISTENERS}
        of_one = {
            f"listener.name.{name.lower()}.as.version": release
            for name, release in LISTENERS.items()
            if name != "PLAINTEXT"
        }
        super().__init__(
            folder,
            settings={
                "listeners": ",".join(
                    f"{name}://{self.host}:{port}" for name, port in self.ports.items()
                ),
                "listener.security.protocol.map": ",".join(
                    f"{name}:PLAINTEXT" for name in LISTENERS
                ),
                "as.version.client.ids": ",".join(map(":".join, CLIENT_IDS.items())),
                **of_one,
            },
            arguments=("--as-version", LISTENERS["PLAINTEXT"]),
        )

    def connect(self, listener: str, client_id: str = "anybody") -> Caller:
        return Caller(self.host, self.ports[listener], client_id=client_id)


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with Rehearsal(tmp_path_factory.mktemp("rehearsal")) as broker:
        yield broker


def asked(client: WireClient, version: int = 0) -> Any:
    """The answer to ApiVersions."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return client.call(request, version)


def listed(answer: Any) -> dict[int, tuple[int, int]]:
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def expected(release: str) -> dict[int, tuple[int, int]]:
    """What of a release is answered here."""
    return {
        key: (lowest, min(highest, APIS[key].max_version))
        for key, (lowest, highest) in Release(release).advertised.items()
        if key in HANDLERS
    }


def is_closed(client: WireClient, request: Any, version: int) -> bool:
    try:
        client.call(request, version)
    except ConnectionClosed:
        return True
    return False


@pytest.mark.parametrize("listener", ["PLAINTEXT", "OLD", "NEW"])
def test_a_listener_advertises_what_its_release_does(rehearsal: Rehearsal, listener: str) -> None:
    with rehearsal.connect(listener) as client:
        assert listed(asked(client)) == expected(LISTENERS[listener])


@pytest.mark.parametrize("listener", ["PLAINTEXT", "OLD", "NEW"])
@pytest.mark.parametrize("client_id", ["legacy", "modern"])
def test_a_client_id_gets_its_own_release_on_every_listener(
    rehearsal: Rehearsal, listener: str, client_id: str
) -> None:
    with rehearsal.connect(listener, client_id) as client:
        assert listed(asked(client)) == expected(CLIENT_IDS[client_id])


@pytest.mark.parametrize(
    ("listener", "client_id", "request_", "last"),
    [
        ("PLAINTEXT", "anybody", MetadataRequest(topics=[]), 11),
        ("OLD", "anybody", MetadataRequest(topics=[]), 2),
        ("NEW", "anybody", MetadataRequest(topics=[]), 13),
        ("NEW", "legacy", MetadataRequest(topics=[]), 5),
        ("OLD", "modern", FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 18),
    ],
)
def test_a_version_above_those_of_the_release_closes_the_connection(
    rehearsal: Rehearsal, listener: str, client_id: str, request_: Any, last: int
) -> None:
    with rehearsal.connect(listener, client_id) as client:
        client.call(request_, last)
        above = client.frame(request_, min(last + 1, APIS[type(request_).key].max_version), 2)
        client.send_raw(above[:6] + struct.pack(">h", last + 1) + above[8:])
        assert client.closed_by_server()


def test_kafka_4_closes_what_it_has_removed(rehearsal: Rehearsal) -> None:
    for request, version in (
        (MetadataRequest(topics=[]), 0),
        (FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 3),
    ):
        with rehearsal.connect("NEW") as client:
            closes = version < Release("4.1").advertised[type(request).key].lowest
            assert is_closed(client, request, version) == closes
    with rehearsal.connect("NEW") as client, pytest.raises(ConnectionClosed):
        client.produce("nowhere", batch(b"x"), version=2)


@pytest.mark.parametrize(
    ("listener", "client_id", "answer"),
    [
        ("PLAINTEXT", "anybody", WITH_THE_RANGE_OF_2_8),
        ("OLD", "anybody", ONLY_ERROR_35),
        ("NEW", "legacy", ONLY_ERROR_35),
        ("NEW", "ancient", None),
    ],
)
def test_an_unknown_version_of_api_versions_is_answered_as_the_release_does(
    rehearsal: Rehearsal, listener: str, client_id: str, answer: bytes | None
) -> None:
    with rehearsal.connect(listener, client_id) as client:
        sent = client.frame(ApiVersionsRequest(client_software_name="x"), 5)
        client.send_raw(sent[:6] + struct.pack(">h", 9) + sent[8:])
        if answer is None:
            assert client.closed_by_server()
        else:
            assert struct.pack(">i", len(answer) - 4) + client.recv_frame() == answer


def test_kafka_0_9_leaves_unanswered_what_it_does_not_know(rehearsal: Rehearsal) -> None:
    """As it did: the next request on the same connection is answered."""
    with rehearsal.connect("OLDEST") as client:
        unknown = client.frame(MetadataRequest(topics=[]), 0)
        client.send_raw(unknown[:4] + struct.pack(">h", 99) + unknown[6:])
        client.send(ApiVersionsRequest(client_software_name="x"), 3)
        client.send(MetadataRequest(topics=None), 4)  # a null array, which it cannot read
        assert client.call(MetadataRequest(topics=[]), 0).topics == []


@pytest.mark.parametrize(("listener", "client_id"), [("OLDEST", "anybody"), ("NEW", "ancient")])
def test_what_is_older_than_0_10_reads_any_fetch_as_the_newest_that_it_knows(
    rehearsal: Rehearsal, listener: str, client_id: str
) -> None:
    known = 1 if listener == "OLDEST" else 0
    empty = struct.pack(">iiii", -1, 0, 0, 0)
    with rehearsal.connect(listener, client_id) as client:
        sent = client.frame(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), known, 7)
        assert sent.endswith(empty)
        for version in (known, 4, 11):
            client.send_raw(sent[:6] + struct.pack(">h", version) + sent[8:])
            answer = client.recv_frame()
            assert answer == struct.pack(">i", 7) + bytes(4 * (known + 1))


def test_topics_need_counts_before_2_4(rehearsal: Rehearsal) -> None:
    def create(listener: str, partitions: int, factor: int) -> int:
        topic = CreateTopicsRequest.Topic(
            name=f"of-{listener.lower()}",
            num_partitions=partitions,
            replication_factor=factor,
            assignments=[],
            configs=[],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True)
        with rehearsal.connect(listener) as client:
            code: int = client.call(request, 1).topics[0].error_code
            return code

    assert create("OLD", -1, 1) == ErrorCode.INVALID_PARTITIONS
    assert create("OLD", 1, -1) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert create("OLD", 1, 1) == ErrorCode.NONE
    assert create("PLAINTEXT", -1, -1) == ErrorCode.NONE


AS_STORED = {GIVEN: "zstd", CONFIGURED: "zstd", BEHIND: "none, zstd"}
REFUSED = {GIVEN: "error 76", CONFIGURED: "error 76", BEHIND: "none"}
CONVERTED = {GIVEN: "gzip", CONFIGURED: "gzip", BEHIND: "none"}


@pytest.fixture(scope="module")
def zstd_topics(rehearsal: Rehearsal) -> None:
    fill(f"{rehearsal.host}:{rehearsal.ports['NEW']}", MODERN.encode())


@pytest.mark.parametrize(
    ("listener", "client_id", "versions", "expected"),
    [
        ("PLAINTEXT", "of 2.8", range(4), REFUSED),
        ("PLAINTEXT", "of 2.8", range(4, 10), {**AS_STORED, CONFIGURED: "error 76"}),
        ("PLAINTEXT", "of 2.8", range(10, 12), AS_STORED),
        ("NEW", "of 4.1", range(4, 12), AS_STORED),
        ("PLAINTEXT", "legacy", range(4, 7), CONVERTED),  # 1.1 stores no zstd
    ],
)
@pytest.mark.usefixtures("zstd_topics")
def test_old_fetches_meet_zstd_as_in_the_release(
    rehearsal: Rehearsal,
    listener: str,
    client_id: str,
    versions: range,
    expected: dict[str, str],
) -> None:
    with rehearsal.connect(listener, client_id) as client:
        assert {version: met(client, version) for version in versions} == dict.fromkeys(
            versions, expected
        )


def test_features_are_those_that_the_release_tells(rehearsal: Rehearsal) -> None:
    with rehearsal.connect("PLAINTEXT") as client:
        old = asked(client, 3)
    assert (old.supported_features, old.finalized_features) == ([], [])
    assert old.finalized_features_epoch == 0
    with rehearsal.connect("NEW") as client:
        new = asked(client, 4)
    levels = {one.name: (one.min_version, one.max_version) for one in new.supported_features}
    assert levels == {
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 27),
        "transaction.version": (0, 2),
    }
    assert new.finalized_features_epoch > 0


def test_it_is_said_in_the_log_once_for_each_listener(rehearsal: Rehearsal) -> None:
    assert rehearsal.run is not None
    said = rehearsal.run.output()
    lines = [line for line in said.splitlines() if "as by another release" in line]
    for listener, release in LISTENERS.items():
        (line,) = (line for line in lines if line.endswith(f" listener={listener}"))
        assert f" as_version={release} " in line


def test_a_release_is_changed_and_left_while_the_broker_runs(rehearsal: Rehearsal) -> None:
    with rehearsal.connect("OLD", MODERN) as admin, rehearsal.connect("PLAINTEXT") as before:
        set_all(admin, {"as.version": "3.9", "as.version.client.ids": f"{MODERN}:4.4,late:0.11"})
        for client_id, release in (("anybody", "3.9"), ("late", "0.11"), ("legacy", "3.9")):
            with rehearsal.connect("PLAINTEXT", client_id) as client:
                assert listed(asked(client)) == expected(release)
        assert listed(asked(before)) == expected("2.8"), "as it began"

        refused = alter(admin, ("as.version", SET, "4.9"))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "the nearest is 4.4" in (refused.error_message or "")

        delete_all(admin, "as.version", "as.version.client.ids")
        with rehearsal.connect("PLAINTEXT", "legacy") as client:
            assert listed(asked(client)) == expected("1.1")
        assert alter(admin, ("as.version", DELETE, None)).error_code == 0


@pytest.mark.parametrize(("release", "magic"), [("0.9", 0), ("0.10.1", 1), ("1.0", 2)])
def test_topics_store_the_newest_format_of_the_release(
    tmp_path: Path, release: str, magic: int
) -> None:
    settings = {"as.version": release, "as.version.client.ids": f"{MODERN}:4.4"}
    with (
        BrokerProcess(tmp_path / "data", settings=settings) as broker,
        Caller(broker.host, broker.port, client_id=MODERN) as modern,
        Caller(broker.host, broker.port, client_id="old") as old,
    ):
        modern.create_topic("t")
        assert modern.produce("t", batch(b"from today")).error_code == 0
        assert old.produce("t", message(b"from then", magic=0), version=1).error_code == 0

        records = modern.fetch("t").records
        assert set(magics(records)) == {magic}
        assert [one.value for one in seen(records)] == [b"from today", b"from then"]


def test_clients_log_in_as_they_did_with_the_release(tmp_path: Path) -> None:
    user = "alice"
    token = f"\0{user}\0{USERS[user]}".encode()
    with SecuredBroker(tmp_path, {"as.version": "0.10.2"}) as broker:
        with broker.connect("SASL_PLAINTEXT") as client:
            assert listed(asked(client)) == expected("0.10.2")
            assert shake(client, "PLAIN", 0).error_code == 0
            assert send_token(client, token) == b""
            client.call(MetadataRequest(topics=[]), 2)
            assert is_closed(client, MetadataRequest(topics=[]), 3)
        with broker.connect("SASL_PLAINTEXT") as client, pytest.raises(ConnectionClosed):
            shake(client, "PLAIN", 1)


def test_a_login_belongs_to_the_release_of_its_client_id(tmp_path: Path) -> None:
    user = "alice"
    token = f"\0{user}\0{USERS[user]}".encode()
    settings = {"as.version": "0.10.2", "as.version.client.ids": "secured:1.0"}
    with SecuredBroker(tmp_path, settings) as broker, broker.connect("SASL_PLAINTEXT") as client:
        assert shake(client, "PLAIN", 1).error_code == 0
        assert authenticate(client, token, 0).error_code == 0
        assert is_closed(client, MetadataRequest(topics=[]), 6)
