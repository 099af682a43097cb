"""Administration of a whole cluster, with the clients that have calls for it.

`TEST_SERVER=kafka` runs them against Apache Kafka 3.9, which answers the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from tests.clients.available import MARKS, RUNTIMES, end_of_test
from tests.clients.cluster_admins import CLUSTER_ADMINS, said_by
from tests.support.caller import Caller, batch
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.clients

RECORDS = batch(b"a" * 1000)
PRODUCE_VERSION = 11  # the newest of Kafka 3.9

EXPECTED: dict[str, int | str] = {
    "size": f"{len(RECORDS)} 0 false",
    "room": "true",
    "elect": ErrorCode.ELECTION_NOT_NEEDED,
    "elect-all": 0,
    "stay": 0,
    "move": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "cancel": ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    "moving": 0,
    "quota-set": 0,
    "quota-wrong": ErrorCode.INVALID_REQUEST,
    "quota-validated": 0,
    "quota": "{producer_byte_rate=1024.0}",
    "quota-removed": 0,
    "quotas": 0,
    "password-set": 0,
    "password-wrong": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    "password": "2 8192",
    "password-removed": 0,
    "password-missing": ErrorCode.RESOURCE_NOT_FOUND,
    "user-missing": ErrorCode.RESOURCE_NOT_FOUND,
    "level": 21,
    "known": 7,
    "epoch": "true",
    "lower": 0,
    "lower-unsaid": ErrorCode.INVALID_UPDATE_VERSION,
    "lower-with-loss": ErrorCode.INVALID_UPDATE_VERSION,
    "too-high": ErrorCode.INVALID_UPDATE_VERSION,
}
#: How many of these a client has calls for.
CALLS = {"kafka-python": 14, "confluent-kafka": 8, "java-3.9": 27, "java-4": 27}


@pytest.mark.parametrize(
    "key", [pytest.param(key, id=key, marks=MARKS[RUNTIMES[key]]) for key in CLUSTER_ADMINS]
)
def test_a_cluster_is_administered(broker: ServerProcess, topic: str, key: str) -> None:
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic(topic)
        caller.produce(topic, RECORDS, version=PRODUCE_VERSION)
    try:
        said = said_by(key, broker.bootstrap, topic, user=f"user-{topic}")
    except NotAvailable as reason:
        end_of_test(RUNTIMES[key], f"{key}: {reason}")

    assert said == {name: str(EXPECTED[name]) for name in said}
    assert len(said) == CALLS[key]
