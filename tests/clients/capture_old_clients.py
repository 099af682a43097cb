"""Captures for tests/protocol/corpus what the old clients of the grid send.

    python -m tests.clients.capture_old_clients [--into tests/protocol/corpus]

Apache Kafka, which answers all of it, stands behind the proxy of `tests/support/capture.py`. Each
client writes three records in each codec and reads them.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
from pathlib import Path

from protocol.registry import APIS
from tests.clients.available import Clients
from tests.clients.grid_clients import GRID_CLIENTS, GridClient, GridDrivers
from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.support.capture import Corpus, capture
from tests.support.kafka_process import KafkaProcess
from tests.support.server_process import free_port, wait_until_listening

CORPUS = Path(__file__).resolve().parents[1] / "protocol" / "corpus"

PRODUCE = 0

#: What is kept: what writing and reading without a group takes.
KEPT = {"produce", "fetch", "list_offsets", "metadata", "find_coordinator", "api_versions"}

RECORDS = [
    Record(0, FIRST_TIMESTAMP_MS, b"key", b"value"),
    Record(0, FIRST_TIMESTAMP_MS + 1, None, b"of no key"),
    Record(0, FIRST_TIMESTAMP_MS + 2, b"gone", None),
]


class OldClientsCorpus(Corpus):
    """The codec is of interest in Produce only; the rest is the same whatever is written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "")
        #: The client that is driven now; of others nothing is kept.
        self.name = ""
        self.codec = ""

    def keep(self, frame: bytes) -> None:
        key = int.from_bytes(frame[4:6], "big")
        if not self.name or key not in APIS or APIS[key].module not in KEPT:
            return
        suffix = f", {self.codec}" if key == PRODUCE and self.codec != "none" else ""
        self._client = self.name + suffix
        super().keep(frame)


def drive(client: GridClient, drivers: GridDrivers, address: str, corpus: OldClientsCorpus) -> None:
    topic = f"captured-{client.key}"
    drivers.create_topic(address, topic, {"retention.ms": "-1"})
    corpus.name = client.corpus_name
    for corpus.codec in client.writes:
        drivers.write(client, address, topic, RECORDS, codec=corpus.codec)
    if client.reads:
        drivers.read(client, address, topic, {0: len(RECORDS) * len(client.writes)})
    corpus.name = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=CORPUS)
    corpus = OldClientsCorpus(parser.parse_args().into)
    host, port = "127.0.0.1", free_port()
    listeners = {"advertised.listeners": f"PLAINTEXT://{host}:{port}"}
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaProcess(Path(folder) / "data", settings=listeners) as kafka,
    ):
        proxy = capture((host, port), (kafka.host, kafka.port), corpus)
        threading.Thread(target=asyncio.run, args=[proxy], daemon=True).start()
        assert wait_until_listening(host, port, timeout_s=5)
        clients = Clients(lambda name: Path(tempfile.mkdtemp(name, dir=folder)))
        drivers = GridDrivers(clients, Path(folder))
        for client in GRID_CLIENTS:
            if client.old:
                drive(client, drivers, f"{host}:{port}", corpus)
                print(client.corpus_name)
        drivers.close()
        clients.close()


if __name__ == "__main__":
    main()
