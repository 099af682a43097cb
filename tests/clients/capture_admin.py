"""Captures for tests/protocol/corpus what administrators ask of a whole cluster.

    python -m tests.clients.capture_admin [--into tests/protocol/corpus]

Our broker stands behind the proxy of `tests/support/capture.py`; the programs of
`tests/clients/cluster_admins.py` talk to it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import tempfile
import threading
from pathlib import Path

from protocol.registry import APIS
from tests.clients.capture_groups import CORPUS
from tests.clients.cluster_admins import CLUSTER_ADMINS, said_by
from tests.clients.drivers.program_driver import JAVA_VERSIONS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.capture import Corpus, capture
from tests.support.server_process import free_port, wait_until_listening

HOST = "127.0.0.1"
KEPT = {
    "describe_log_dirs", "elect_leaders", "alter_partition_reassignments",
    "list_partition_reassignments", "describe_client_quotas", "alter_client_quotas",
    "describe_user_scram_credentials", "alter_user_scram_credentials", "update_features",
}  # fmt: skip


class AdminCorpus(Corpus):
    """Keeps what `name` asks of a cluster."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "")

    def is_from(self, name: str) -> None:
        """Whatever comes next is from this client."""
        self._client = name

    def keep(self, frame: bytes) -> None:
        key = int.from_bytes(frame[4:6], "big")
        if key in APIS and APIS[key].module in KEPT:
            super().keep(frame)


def corpus_name(key: str) -> str:
    """Library and release."""
    if key in JAVA_VERSIONS:
        return f"java {JAVA_VERSIONS[key]}"
    return f"{key} {importlib.metadata.version(key)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=CORPUS)
    corpus = AdminCorpus(parser.parse_args().into)
    port = free_port()
    settings = {"advertised.listeners": f"PLAINTEXT://{HOST}:{port}"}
    with (
        tempfile.TemporaryDirectory() as name,
        BrokerProcess(Path(name) / "data", settings=settings) as broker,
    ):
        proxy = capture((HOST, port), (broker.host, broker.port), corpus)
        threading.Thread(target=asyncio.run, args=[proxy], daemon=True).start()
        assert wait_until_listening(HOST, port, timeout_s=5)
        with Caller(broker.host, broker.port) as caller:
            caller.create_topic("captured")
        for key in CLUSTER_ADMINS:
            corpus.is_from(corpus_name(key))
            said_by(key, f"{HOST}:{port}", "captured", user="alice")
            print(corpus_name(key), flush=True)


if __name__ == "__main__":
    main()
