"""A broker that answers as a release, and a broker of that release: every version of every API, and
what clients of today make of either.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from broker.network.dispatch import HANDLERS
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.registry import APIS
from protocol.releases import Release
from tests.clients.available import end_of_test, every_client_but
from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.support.old_kafka import OldKafka
from tests.support.version_sweep import Outcome, every_version, outcome
from tests.support.wire_client import WireClient
from tests.support.zstd_fetches import fill, met

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.clients.drivers.driver import Driver
    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.java, pytest.mark.long]

KRAFT = {"3.9": KAFKA_3_9, "4.1": KAFKA_4._replace(name="4.1", newer=Release("4.1").version)}
BESIDE = ("0.10.2", "1.1", "2.4", "2.8", *KRAFT)
EACH = pytest.mark.parametrize("pair", BESIDE, indirect=True)
WITH_CLIENTS = pytest.mark.parametrize("pair", ["0.10.2", "2.8", "4.1"], indirect=True)
LEADER_WITHIN_S = 60.0
LAST_FETCH_BY_NAME = 12
LEVELS_OF_THE_DIRECTORY = ("metadata.version", "group.version", "transaction.version")


class Pair(NamedTuple):
    """A broker of a release, and one of ours that answers as that."""

    release: Release
    kafka: ServerProcess
    ours: BrokerProcess


@pytest.fixture(scope="module")
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    release, folder = Release(request.param), tmp_path_factory.mktemp("pair")
    kafka: ServerProcess
    try:
        if release.name in KRAFT:
            kafka = KafkaProcess(folder / "kafka", release=KRAFT[release.name])
        else:
            kafka = OldKafka(folder / "kafka", version=release.version)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    ours = BrokerProcess(folder / "ours", arguments=("--as-version", release.name))
    with kafka, ours:
        yield Pair(release, kafka, ours)


def api_versions(server: ServerProcess, version: int) -> Any:
    with WireClient(server.host, server.port) as client:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return client.call(request, version)


@EACH
def test_every_version_of_every_api_meets_the_same(pair: Pair) -> None:
    different = {}
    for key, version in every_version():
        there = outcome(pair.kafka.host, pair.kafka.port, key, version)
        here = outcome(pair.ours.host, pair.ours.port, key, version)
        if key in pair.release.advertised and key not in HANDLERS:
            assert here is Outcome.CLOSED  # docs/releases.md names it
        elif here is not there:
            different[key, version] = here.value, there.value
    assert different == {}


@EACH
def test_the_same_apis_and_versions_are_advertised(pair: Pair) -> None:
    for version in range(pair.release.advertised[18].highest + 1):
        there, here = (api_versions(server, version) for server in (pair.kafka, pair.ours))
        ranges = [
            {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
            for answer in (there, here)
        ]
        assert ranges[1] == {key: one for key, one in ranges[0].items() if key in HANDLERS}
        assert all(high <= APIS[key].max_version for key, (_, high) in ranges[1].items())
        levels = [
            {
                one.name: (one.min_version, one.max_version)
                for one in answer.supported_features
                if one.name in LEVELS_OF_THE_DIRECTORY
            }
            for answer in (there, here)
        ]
        assert levels[1] == levels[0]
        assert (here.finalized_features_epoch > 0) == (there.finalized_features_epoch > 0)
        if not pair.release.has_features:
            assert here.finalized_features_epoch == there.finalized_features_epoch


@pytest.mark.parametrize("pair", ["2.4", "2.8", "3.9", "4.1"], indirect=True)
def test_zstd_meets_the_same_in_every_version_of_fetch(pair: Pair) -> None:
    found = []
    for server in (pair.kafka, pair.ours):
        fill(server.bootstrap)
        there = pair.release.advertised[1]
        with Caller(server.host, server.port) as client:
            versions = range(there.lowest, LAST_FETCH_BY_NAME + 1)
            found.append(
                {version: met(client, version) for version in versions if version <= there.highest}
            )
    assert found[1] == found[0]


@WITH_CLIENTS
@pytest.mark.parametrize("client", every_client_but("aiokafka"), indirect=True)
def test_a_client_of_today_says_the_same_of_both(client: Driver, pair: Pair) -> None:
    """It is served, or it ends with the same error."""
    assert story(client, pair.ours) == story(client, pair.kafka)


def story(client: Driver, server: ServerProcess) -> list[str]:
    """What came of a topic, of records and of reading them back."""
    records = [Record(0, FIRST_TIMESTAMP_MS + n, b"k", b"v%d" % n) for n in range(3)]
    bootstrap, topic = server.bootstrap, re.sub(r"\W+", "-", f"of-{client.name}")

    def create() -> None:
        client.create_topic(bootstrap, topic, partitions=1, configs={"retention.ms": "-1"})

    def produce() -> None:
        client.produce(bootstrap, topic, records, codec="gzip", idempotent=False)

    def consume() -> object:
        return [record for _, record in client.consume(bootstrap, topic, [0])[0]]

    told = [_told(create, bootstrap)]
    wait_for_leader(server, topic)
    return [*told, *(_told(step, bootstrap) for step in (produce, consume))]


def wait_for_leader(server: ServerProcess, topic: str) -> None:
    """Wait until a topic can be written to; asking for it makes it where the client could not."""
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
    deadline_s = time.monotonic() + LEADER_WITHIN_S
    with WireClient(server.host, server.port) as client:
        while True:
            (found,) = client.call(request, 1).topics
            if found.error_code == 0 and all(one.error_code == 0 for one in found.partitions):
                return
            assert time.monotonic() < deadline_s, found
            time.sleep(0.1)


def _told(step: Callable[[], object], bootstrap: str) -> str:
    try:
        return repr(step())
    except Exception as error:  # of any client
        said = str(error).replace(bootstrap, "BROKER")
        return f"{type(error).__name__}: {re.sub(r'[0-9]+ ms', 'N ms', said)}"
