"""The releases of Apache Kafka that a broker can answer as, and their routes."""

from __future__ import annotations

import struct

import pytest

from broker.network.dispatch import HANDLERS, served
from config.formats import NAMES
from protocol.connection import Routes, ServerConnection, UnservedRequest
from protocol.errors import Malformed
from protocol.messages.metadata import MetadataRequest
from protocol.registry import APIS
from protocol.rehearsal import RehearsedRoutes, RoutesByClient
from protocol.release_ranges import RANGES
from protocol.releases import RELEASES, Release
from tests.support.version_sweep import every_version

UNDRESSED = Routes(served())
PRODUCE, FETCH, METADATA = 0, 1, 3

OFF_BY_DEFAULT = {("InitProducerId", 6)}
BETWEEN_BROKERS = {"Envelope", "FetchSnapshot"}

# From the notes on upgrades and the proposals that brought them.
PUBLISHED = {
    "0.8.2": {PRODUCE: (0, 0), FETCH: (0, 0), METADATA: (0, 0)},
    "0.9": {PRODUCE: (0, 1), FETCH: (0, 1), 16: (0, 0)},
    "0.10.0": {PRODUCE: (0, 2), FETCH: (0, 2), 18: (0, 0)},
    "0.10.2": {PRODUCE: (0, 2), FETCH: (0, 3), 19: (0, 1)},
    "0.11": {PRODUCE: (0, 3), FETCH: (0, 5), 22: (0, 0)},  # KIP-98
    "1.1": {FETCH: (0, 7)},  # KIP-227
    "2.1": {PRODUCE: (0, 7), FETCH: (0, 10)},  # KIP-110
    "2.4": {18: (0, 3), 44: (0, 1)},  # KIP-482, KIP-511
    "3.1": {FETCH: (0, 13)},  # KIP-516
    "3.7": {FETCH: (0, 16), 68: (0, 0)},  # KIP-951, KIP-848
    "4.0": {PRODUCE: (0, 12), FETCH: (4, 17), 2: (1, 10)},  # KIP-896
}


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_answers_its_own_versions_and_no_other(name: str) -> None:
    release = Release(name)
    routes = RehearsedRoutes(UNDRESSED, release)

    for key, version in every_version():
        there, here = release.answered(key), UNDRESSED.served.get(key)
        wanted = (
            there is not None
            and here is not None
            and max(there.lowest, here.min_version)
            <= version
            <= min(there.highest, here.max_version)
        )
        if wanted:
            assert routes.find(key, version) is UNDRESSED.get(key << 16 | version)
        elif there is not None and release.reads_as_newest(key):
            assert routes.find(key, version).version == there.highest
        else:
            with pytest.raises(UnservedRequest, match=f"Kafka {name}"):
                routes.find(key, version)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_table_says_what_was_published(name: str) -> None:
    advertised = Release(name).advertised

    assert {key: advertised[key] for key in PUBLISHED[name]} == PUBLISHED[name]


def test_together_they_have_every_version_that_is_declared_here() -> None:
    """Two sources: messages were declared from their schemas, the table was read from jars."""
    for key, api in APIS.items():
        ranges = [
            text.split("-")
            for change in RANGES.get(key, ("", "x 32767-32767"))[1].split(", ")
            if (text := change.split(" ")[1]) != "none"
        ]
        if api.name in BETWEEN_BROKERS:
            continue
        lowest = min(int(low) for low, _ in ranges)
        highest = max(int(high) for _, high in ranges)
        declared = [
            version
            for version in range(api.min_version, api.max_version + 1)
            if (api.name, version) not in OFF_BY_DEFAULT
        ]
        assert (declared[0], declared[-1]) == (lowest, highest), api.name


def test_settings_know_the_same_releases() -> None:
    assert tuple(NAMES) == RELEASES


def test_what_a_release_has_and_nobody_answers_here_is_not_advertised() -> None:
    routes = RehearsedRoutes(UNDRESSED, Release("4.4"))

    advertised = {key for key, _, _ in routes.advertised()}
    assert advertised == set(HANDLERS) & set(Release("4.4").advertised)


def test_kafka_4_advertises_old_versions_of_produce_and_refuses_them() -> None:
    routes = RehearsedRoutes(UNDRESSED, Release("4.0"))

    assert (PRODUCE, 0, 12) in routes.advertised()
    with pytest.raises(UnservedRequest, match=r"Produce v2 is not served by Apache Kafka 4\.0"):
        routes.find(PRODUCE, 2)
    assert routes.find(PRODUCE, 3).version == 3


def frame(client_id: bytes | None, version: int) -> bytes:
    header = struct.pack(">hhi", METADATA, version, 1)
    header += struct.pack(">h", -1 if client_id is None else len(client_id)) + (client_id or b"")
    header += b"\0" if version >= APIS[METADATA].first_flexible else b""
    body = header + MetadataRequest(topics=[]).encode(version)
    return struct.pack(">i", len(body)) + body


def connection(**by_client: str) -> ServerConnection:
    routes = RoutesByClient(
        RehearsedRoutes(UNDRESSED, Release("2.8")),
        {one: RehearsedRoutes(UNDRESSED, Release(name)) for one, name in by_client.items()},
    )
    return routes.connection(max_frame_bytes=1 << 20)


def test_a_client_id_has_a_release_of_its_own_on_the_same_connection() -> None:
    wire = connection(old="0.10.2", new="4.1")

    for client_id, version in ((b"old", 2), (b"new", 13), (b"other", 11), (None, 11)):
        (request,) = wire.receive(frame(client_id, version))
        assert request.version == version
    with pytest.raises(Malformed, match=r"Metadata v3 is not served by Apache Kafka 0\.10\.2"):
        wire.receive(frame(b"old", 3))


def test_the_release_of_a_client_holds_however_its_frame_is_cut() -> None:
    whole = frame(b"old", 2) + frame(b"new", 13)
    for at in range(1, len(whole)):
        wire = connection(old="0.10.2", new="4.1")
        requests = [*wire.receive(whole[:at]), *wire.receive(whole[at:])]
        assert [one.version for one in requests] == [2, 13]


def test_what_authenticates_is_that_of_the_release() -> None:
    routes = RehearsedRoutes(UNDRESSED, Release("0.10.2"))
    before = routes.only((17, 18, 36), when="before authentication")

    assert before.advertised() == [(17, 0, 0), (18, 0, 0)]
    # Tokens of 0.10 have no header, so that no version of SaslAuthenticate stands in them.
    assert before.token().api.name == "SaslAuthenticate"
    with pytest.raises(UnservedRequest, match="before authentication"):
        before.find(36, 0)
