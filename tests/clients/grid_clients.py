"""The clients of the grid: who writes what, who reads what, and what each must be told.

From 0.8 on, so of every record format and of every way to find out what a broker can do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.clients.drivers.driver import CODECS
from tests.clients.drivers.old_program_driver import DRIVERS, OldProgramDriver
from tests.clients.records import Abilities

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.available import Clients
    from tests.clients.drivers.driver import Driver
    from tests.clients.records import Record, Stored

ALL_BUT_ZSTD = CODECS[:4]

ALL_ABILITIES = Abilities()

#: kafka-python and aiokafka refuse to send a record that has neither key nor value.
NO_EMPTY_RECORD = Abilities(nothing_at_all=False)


@dataclass(frozen=True)
class GridClient:
    """One client library in one release. What it lacks it never had; no broker can give it."""

    key: str
    runtime: str
    #: A release that needs a program of its own: "java 0.9.0.1".
    old: str = ""
    #: The command of that program which writes.
    produce_command: str = "produce"
    writes: tuple[str, ...] = CODECS
    #: The codecs whose bytes it can open, as long as nobody puts others in their place.
    reads: tuple[str, ...] = CODECS
    timestamps: bool = True
    headers: bool = True
    #: The highest version of Fetch that it sends, if that is below 10, from which on zstd is given.
    fetch_version: int = 10
    abilities: Abilities = ALL_ABILITIES
    #: Why it cannot read lz4 in format 0, whose frames have another checksum than lz4 asks for.
    no_old_lz4: str = ""
    #: Why it cannot read formats 0 and 1.
    no_old_formats: str = ""
    #: What its user must set or know, in words for docs/clients.md.
    needs: str = ""

    @property
    def corpus_name(self) -> str:
        """As its frames in tests/protocol/corpus are marked."""
        return self.old if self.produce_command == "produce" else "scala 0.8.2.2"


SIX = "From Python 3.12 on, `kafka/vendor/six.py` must be a newer one."
IDEMPOTENT = "`{}` to write to topics in format 0 or 1, which have no place for producer ids."

GRID_CLIENTS = (
    GridClient(
        "kafka-python-0.9.5",
        "python",
        old="kafka-python 0.9.5",
        writes=("none", "gzip", "snappy"),
        reads=("none", "gzip", "snappy"),
        timestamps=False,
        headers=False,
        fetch_version=0,
        abilities=NO_EMPTY_RECORD,
        needs="From Python "
        "3.7 on the library must be changed, because `async` became a keyword: "
        "`tests/clients/python/patches.py` does it. It skips records in lz4 without a word.",
    ),
    GridClient(
        "kafka-python-1.4.7",
        "python",
        old="kafka-python 1.4.7",
        writes=ALL_BUT_ZSTD,
        reads=ALL_BUT_ZSTD,
        fetch_version=4,
        abilities=NO_EMPTY_RECORD,
        needs=f"{SIX} It fails on a header whose value is null.",
    ),
    GridClient(
        "kafka-python-2.0.2",
        "python",
        old="kafka-python 2.0.2",
        fetch_version=4,
        abilities=NO_EMPTY_RECORD,
        needs=SIX,
    ),
    GridClient(
        "kafka-python",
        "python",
        abilities=NO_EMPTY_RECORD,
        needs=f"{IDEMPOTENT.format('enable_idempotence=False')} xxhash for lz4 in format 0.",
    ),
    GridClient(
        "aiokafka",
        "python",
        abilities=NO_EMPTY_RECORD,
        no_old_lz4="the client refuses lz4 in format 0",
    ),
    GridClient("confluent-kafka", "python"),
    GridClient("kafkajs", "node", abilities=Abilities(header_order=False)),
    GridClient(
        "scala-0.8.2",
        "java",
        old="java 0.8.2.2",
        produce_command="produce-scala",
        writes=ALL_BUT_ZSTD,
        reads=(),
        timestamps=False,
        headers=False,
        fetch_version=0,
        needs="`metadata.broker.list`. It is the producer that came before the one in Java.",
    ),
    GridClient(
        "java-0.8.2",
        "java",
        old="java 0.8.2.2",
        writes=ALL_BUT_ZSTD,
        reads=ALL_BUT_ZSTD,
        timestamps=False,
        headers=False,
        fetch_version=0,
        needs="Reads with `SimpleConsumer`; the consumer with groups needs ZooKeeper.",
    ),
    GridClient(
        "java-0.9.0",
        "java",
        old="java 0.9.0.1",
        writes=ALL_BUT_ZSTD,
        reads=ALL_BUT_ZSTD,
        timestamps=False,
        headers=False,
        fetch_version=1,
    ),
    GridClient(
        "java-0.10.0",
        "java",
        old="java 0.10.0.1",
        writes=ALL_BUT_ZSTD,
        reads=ALL_BUT_ZSTD,
        headers=False,
        fetch_version=2,
    ),
    GridClient(
        "java-0.10.2",
        "java",
        old="java 0.10.2.2",
        writes=ALL_BUT_ZSTD,
        reads=ALL_BUT_ZSTD,
        headers=False,
        fetch_version=3,
    ),
    GridClient(
        "java-0.11.0",
        "java",
        old="java 0.11.0.3",
        writes=ALL_BUT_ZSTD,
        reads=ALL_BUT_ZSTD,
        fetch_version=5,
    ),
    GridClient(
        "java-1.1",
        "java",
        old="java 1.1.1",
        writes=ALL_BUT_ZSTD,
        reads=ALL_BUT_ZSTD,
        fetch_version=7,
    ),
    GridClient("java-2.8", "java", old="java 2.8.2"),
    GridClient("java-3.9", "java", needs=IDEMPOTENT.format("enable.idempotence=false")),
    GridClient("java-4", "java", needs=IDEMPOTENT.format("enable.idempotence=false")),
)

BY_KEY = {client.key: client for client in GRID_CLIENTS}


class GridDrivers:
    """Their drivers: those of the other tests where there is one, else a program of its own."""

    def __init__(self, clients: Clients, folder: Path) -> None:
        self._clients = clients
        self._folder = folder
        self._old: dict[str, OldProgramDriver] = {}

    def get(self, client: GridClient) -> Driver | OldProgramDriver:
        """The driver. Raises `fetched.NotAvailable`."""
        return self._old_driver(client) if client.old else self._clients.find(client.key)

    def name(self, client: GridClient) -> str:
        """Library and release, as the corpus of frames marks them: `java 3.9.2`."""
        if client.old:
            return client.corpus_name
        library, release, *_ = self._clients.find(client.key).name.split()
        return f"{'java' if library == 'kafka-clients' else library} {release}"

    def create_topic(self, bootstrap: str, topic: str, configs: dict[str, str]) -> None:
        """With a partition for each codec. Most of the clients here cannot do it themselves."""
        self.admin.create_topic(bootstrap, topic, partitions=len(CODECS), configs=configs)

    @property
    def admin(self) -> Driver:
        """A client for what the old ones cannot do."""
        return self._clients.find("confluent-kafka")

    def write(
        self, client: GridClient, bootstrap: str, topic: str, records: list[Record], *, codec: str
    ) -> None:
        if client.old:
            self._old_driver(client).produce(
                bootstrap, topic, records, codec=codec, command=client.produce_command
            )
        else:
            driver = self._clients.find(client.key)
            driver.produce(bootstrap, topic, records, codec=codec, idempotent=False)

    def read(self, client: GridClient, bootstrap: str, topic: str, ends: dict[int, int]) -> Stored:
        """The partitions named, up to their ends; clients of today look for the ends themselves."""
        if client.old:
            return self._old_driver(client).consume(bootstrap, topic, ends)
        return self._clients.find(client.key).consume(bootstrap, topic, list(ends))

    def read_from(
        self,
        client: GridClient,
        bootstrap: str,
        topic: str,
        ends: dict[int, int],
        *,
        start: int = 0,
    ) -> Stored:
        """With an old client, from an offset on."""
        return self._old_driver(client).consume(bootstrap, topic, ends, start=start)

    def close(self) -> None:
        for driver in self._old.values():
            driver.program.close()

    def _old_driver(self, client: GridClient) -> OldProgramDriver:
        if client.old not in self._old:
            library, release = client.old.split()
            folder = self._folder / client.old.replace(" ", "-")
            folder.mkdir(exist_ok=True)
            self._old[client.old] = DRIVERS[library](release, folder)
        return self._old[client.old]
