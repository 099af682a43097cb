"""Users, rules and quotas go with the data directory to Apache Kafka and back, and are in effect:
clients log in or are refused, are let through or denied, and wait as long as their quota says.

One story for each release of Kafka, with the metadata in the log alone and in snapshots: ours,
Kafka, ours until it is killed, Kafka. Each but the last changes something of everything.
In the other direction Kafka's own tools make all of it, from `kafka-storage format` on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.moving.by_tools import ADMIN, ADMIN_SECRET, FORMAT, GONE, ITERATIONS, Tools
from tests.clients.moving.closed import ClosedBroker, ClosedKafka
from tests.clients.moving.in_effect import LET_IN, attempts
from tests.clients.moving.rights import (
    IN_EFFECT,
    PASSWORDS,
    change_again,
    change_first,
    make,
    prepare,
)
from tests.support.administrator import Administrator
from tests.support.kafka_release import RELEASES, Release

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.moving.closed import Server
    from tests.support.administrator import Facts

pytestmark = [
    pytest.mark.long,
    pytest.mark.clients,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "100"}
"""Snapshots of the metadata by Kafka. Ours writes one when it is stopped, and none when it is
killed."""
CHECKPOINTS = "__cluster_metadata-0/*.checkpoint"
FIRST = "00000000000000000000-0000000000.checkpoint"
"""What formatting writes; it has no user."""


def of_security(server: Server) -> Facts:
    """What the broker says of users, rules and quotas."""
    with Administrator(server.host, server.port, timeout_s=30) as admin:
        return admin.facts(acls=True)._replace(topics={}, configs={}, features={})


def snapshots(data: Path) -> list[str]:
    return [path.name for path in data.glob(CHECKPOINTS) if path.name != FIRST]


@pytest.mark.parametrize("release", [pytest.param(one, id=one.name) for one in RELEASES])
@pytest.mark.parametrize("settings", [{}, OFTEN], ids=["log", "snapshots"])
def test_users_rules_and_quotas_go_to_kafka_and_back(
    tmp_path: Path, release: Release, settings: dict[str, str]
) -> None:
    data, passwords, expected = tmp_path / "data", dict(PASSWORDS), dict(IN_EFFECT)
    broker = ClosedBroker(data, settings=settings)
    broker.start()
    try:
        prepare(broker)
        make(broker)
        said = of_security(broker)
        assert attempts(broker, passwords) == expected
    finally:
        (broker.stop if settings else broker.kill)()
    assert bool(snapshots(data)) is bool(settings)

    kafka = ClosedKafka(tmp_path / "kafka", data, release, settings=settings)
    with kafka:
        assert of_security(kafka) == said
        assert attempts(kafka, passwords) == expected
        expected |= change_first(kafka, passwords)
        said = of_security(kafka)
    assert kafka.complaints() == []
    assert bool(snapshots(data)) is bool(settings)

    broker = ClosedBroker(data, settings=settings, ports_of=kafka)
    broker.start()
    try:
        assert of_security(broker) == said
        assert attempts(broker, passwords) == expected
        expected |= change_again(broker, passwords)
        said = of_security(broker)
    finally:
        broker.kill()

    with kafka:
        assert of_security(kafka) == said
        assert attempts(kafka, passwords) == expected


@pytest.mark.parametrize("release", [pytest.param(one, id=one.name) for one in RELEASES])
@pytest.mark.parametrize("settings", [{}, OFTEN], ids=["log", "snapshots"])
def test_what_the_tools_of_kafka_made_is_taken_over(
    tmp_path: Path, release: Release, settings: dict[str, str]
) -> None:
    data = tmp_path / "data"
    formatted = {(ADMIN, mechanism): ADMIN_SECRET for mechanism in ITERATIONS}
    passwords = formatted | PASSWORDS
    expected = IN_EFFECT | {f"{ADMIN} by {mechanism}": LET_IN for mechanism in ITERATIONS}
    kafka = ClosedKafka(tmp_path / "kafka", data, release, settings=settings, format=FORMAT)
    with kafka:
        tools = Tools(kafka, tmp_path / "tools")
        prepare(kafka)
        tools.make()
        tools.make_and_remove()
        said = of_security(kafka)
        assert attempts(kafka, passwords) == expected
    assert {user for user, _ in said.users} == {user for user, _ in passwords}
    assert GONE not in repr(said)
    assert bool(snapshots(data)) is bool(settings)

    with ClosedBroker(data, settings={}) as broker:
        assert of_security(broker) == said
        assert attempts(broker, passwords) == expected
