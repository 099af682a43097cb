"""The verdict of the census is what happens: clients of many ages on a broker that answers as
4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.client_verdicts import CLOSED, Outcome, Verdict, judge
from storage.clients_file import decode_clients
from tests.clients.available import MARKS, end_of_test
from tests.clients.grid_clients import BY_KEY
from tests.clients.test_rehearsal import ADMIN, RECORDS, TOPIC, broker_of
from tests.clients.test_rehearsal_beside_kafka import wait_for_leader
from tests.clients.used_clients import USED_CLIENTS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from pathlib import Path

    from protocol.client_usage import ClientUsage
    from tests.clients.grid_clients import GridClient, GridDrivers
    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.long]

RELEASE = "4.1"
READ = "read"
CLIENTS = {**BY_KEY, **{client.key: client for client in USED_CLIENTS}}
TRIED = (
    *("kafka-python-0.9.5", "kafka-python-1.4.7", "kafka-python-2.0.2", "kafka-python"),
    *("aiokafka", "confluent-kafka", "librdkafka-1.8.2", "librdkafka-2.5.3", "pykafka"),
    *("kafkajs", "kafka-node", "no-kafka"),
)


API_OF = {"write": "Produce", "read": "Fetch"}


def fate(drivers: GridDrivers, client: GridClient, server: ServerProcess) -> dict[str, bool]:
    """Whether the client can write with this server, and read what others have written."""
    with Caller(server.host, server.port, client_id=ADMIN) as admin:
        for topic in (TOPIC, READ):
            admin.create_topic(topic)
            wait_for_leader(server, topic)
        admin.produce(READ, batch(b"a", b"b"))

    def could(step: str) -> bool:
        try:
            if step == "write":
                drivers.write(client, server.bootstrap, TOPIC, RECORDS, codec="gzip")
            else:
                assert len(drivers.read(client, server.bootstrap, READ, {0: 2})[0]) == 2
        except Exception:  # a client's own, of any kind
            return False
        return True

    return {step: could(step) for step in API_OF if step == "write" or client.reads}


def foretold(drivers: GridDrivers, client: GridClient, data: Path) -> dict[str, list[Verdict]]:
    """The verdicts on the client for its writing and its reading, from what it does here."""
    with BrokerProcess(data) as here:
        steps = fate(drivers, client, here)
    assert all(steps.values()), "it does not do its work here"
    seen = seen_by(here)
    found = {
        step: [judge(usage, RELEASE) for usage in seen if API_OF[step] in usage.requests]
        for step in steps
    }
    assert all(found.values()), "it has neither written nor read"
    return found


def are_fine(verdicts: dict[str, list[Verdict]]) -> dict[str, bool]:
    """The fate that these foretell."""
    return {
        step: all(one.outcome is Outcome.FINE for one in some) for step, some in verdicts.items()
    }


def driver_of(drivers: GridDrivers, key: str) -> GridClient:
    """The client, whose driver is there; else the test ends."""
    client = CLIENTS[key]
    try:
        drivers.get(client)
    except NotAvailable as reason:
        end_of_test(client.runtime, str(reason))
    return client


def seen_by(broker: BrokerProcess) -> list[ClientUsage]:
    """The clients that a broker has seen, which has stopped, but for the administrator."""
    path = broker.data / "clients.json"
    clients = decode_clients(path.read_bytes(), str(path)).clients
    return [usage for usage in clients if usage.identity.client_id != ADMIN]


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=MARKS[CLIENTS[key].runtime]) for key in TRIED]
)
def test_the_verdict_on_a_client_is_what_becomes_of_it(
    grid_drivers: GridDrivers, key: str, tmp_path: Path
) -> None:
    client = driver_of(grid_drivers, key)
    verdicts = foretold(grid_drivers, client, tmp_path / "here" / "data")

    with broker_of(RELEASE, tmp_path / "there") as there:
        found = fate(grid_drivers, client, there)

    assert found == are_fine(verdicts)
    refused = {
        f"{api} v{version}"
        for usage in seen_by(there)
        for api, versions in usage.refused.items()
        for version in versions
    }
    closed = {one.request for some in verdicts.values() for one in some if one.meets == CLOSED}
    assert closed <= refused
