"""A client reads back its own records, and those of every other client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.available import EVERY_CLIENT
from tests.clients.drivers.driver import CODECS, KEEP_FOR_EVER
from tests.clients.records import PARTITIONS, Record, as_read_by, assert_stored, some_records

if TYPE_CHECKING:
    from tests.clients.available import Clients
    from tests.clients.drivers.driver import Driver

pytestmark = pytest.mark.clients

#: Several batches in each partition, and some that are large.
RECORD_COUNT = 3_000

#: For the topics that every client reads: records in each codec.
SHARED_RECORD_COUNT = 400


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("client", EVERY_CLIENT, indirect=True)
def test_thousands_of_records_come_back_as_they_were_written(
    client: Driver, idempotent: bool, codec: str, bootstrap: str, topic: str
) -> None:
    written = some_records(RECORD_COUNT, client.abilities)
    client.create_topic(bootstrap, topic, partitions=PARTITIONS, configs=KEEP_FOR_EVER)

    client.produce(bootstrap, topic, written, codec=codec, idempotent=idempotent)

    assert_stored(written, client.consume(bootstrap, topic))


@pytest.fixture(scope="session")
def shared_topics() -> dict[str, tuple[str, list[Record]]]:
    """The topics written so far for all to read: by writer, the name and what is in it."""
    return {}


@pytest.fixture
def writer(request: pytest.FixtureRequest) -> str:
    key: str = request.param
    return key


@pytest.mark.parametrize("writer", EVERY_CLIENT, indirect=True)
@pytest.mark.parametrize("client", EVERY_CLIENT, indirect=True)
def test_a_topic_with_every_codec_is_read_by_every_client(
    client: Driver,
    writer: str,
    clients: Clients,
    bootstrap: str,
    topic: str,
    shared_topics: dict[str, tuple[str, list[Record]]],
) -> None:
    if writer not in shared_topics:
        shared_topics[writer] = (
            topic,
            _write_in_every_codec(clients.get(writer), bootstrap, topic),
        )
    topic, written = shared_topics[writer]

    stored = client.consume(bootstrap, topic)

    assert_stored([as_read_by(record, client.abilities) for record in written], stored)


def _write_in_every_codec(client: Driver, bootstrap: str, topic: str) -> list[Record]:
    client.create_topic(bootstrap, topic, partitions=PARTITIONS, configs=KEEP_FOR_EVER)
    written: list[Record] = []
    for seed, codec in enumerate(CODECS):
        records = some_records(SHARED_RECORD_COUNT, client.abilities, seed=seed)
        client.produce(bootstrap, topic, records, codec=codec, idempotent=False)
        written += records
    return written
