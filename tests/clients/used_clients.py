"""The most used releases of clients of the last five years, beside those of the grid.

Each has a program of its own (`GridClient.old`). They are tried against a few clients of the grid,
not each against each: what a topic holds does not depend on who reads it.
"""

from __future__ import annotations

from tests.clients.grid_clients import IDEMPOTENT, GridClient
from tests.clients.records import Abilities

LIBRDKAFKA = (
    "1.8.2",
    "1.9.2",
    "2.0.2",
    "2.1.1",
    "2.2.0",
    "2.3.0",
    "2.4.0",
    "2.5.3",
    "2.6.0",
    "2.6.1",
    "2.8.0",
    "2.10.1",
    "2.11.1",
    "2.12.1",
    "2.13.2",
    "2.14.2",
    "2.15.0",
    "2.15.1",
)

#: The frames of lz4 in format 0 have another checksum than lz4 asks for.
NO_OLD_LZ4 = "the client refuses lz4 in format 0"

NO_SNAPPY = "Snappy needs a native package, and was not tried."

JAVA = ("3.4.1", "3.7.2", "4.0.2", "4.1.2")

USED_CLIENTS = (
    *(
        GridClient(f"librdkafka-{release}", "python", old=f"librdkafka {release}")
        for release in LIBRDKAFKA
    ),
    *(
        GridClient(
            f"java-{release}",
            "java",
            old=f"java {release}",
            needs=IDEMPOTENT.format("enable.idempotence=false"),
        )
        for release in JAVA
    ),
    GridClient("franz-go", "go", old="franz-go 1.22.2", no_old_lz4=NO_OLD_LZ4),
    GridClient("sarama", "go", old="sarama 1.61.1", no_old_lz4=NO_OLD_LZ4),
    GridClient(
        "kafka-go",
        "go",
        old="kafka-go 0.4.51",
        abilities=Abilities(empty_bytes=False),
        no_old_lz4=NO_OLD_LZ4,
        needs="It shows an empty key, value or header as none.",
    ),
    GridClient(
        "kafka-node",
        "node",
        old="kafka-node 5.0.0",
        needs=NO_SNAPPY,
        writes=("none", "gzip"),
        reads=("none", "gzip"),
        timestamps=False,
        headers=False,
        fetch_version=2,
    ),
    GridClient(
        "no-kafka",
        "node",
        old="no-kafka 3.4.3",
        writes=("none", "gzip"),
        reads=("none", "gzip"),
        timestamps=False,
        headers=False,
        fetch_version=0,
        needs=NO_SNAPPY,
    ),
    GridClient(
        "pykafka",
        "python",
        old="pykafka 2.8.0",
        writes=("none", "gzip", "snappy"),
        reads=("none", "gzip", "snappy"),
        timestamps=False,
        headers=False,
        fetch_version=1,
    ),
    GridClient(
        "rust-kafka",
        "rust",
        old="rust-kafka 0.10.0",
        writes=("none", "gzip", "snappy"),
        reads=("none", "gzip", "snappy"),
        timestamps=False,
        headers=False,
        fetch_version=0,
        abilities=Abilities(empty_bytes=False),
        needs="The crate is called `kafka`. It shows a null key or value as an empty one.",
    ),
    GridClient(
        "rskafka",
        "rust",
        old="rskafka 0.6.0",
        headers=False,
        no_old_formats="the client knows format 2 only, and says so",
    ),
)
