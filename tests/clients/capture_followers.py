"""Captures for tests/protocol/corpus what those ask who follow the metadata log.

    python -m tests.clients.capture_followers [--into tests/protocol/corpus]

Our broker stands behind two proxies of `tests/support/capture.py`, one for each kind of listener. A
broker of each release of Apache Kafka follows its metadata log; then Kafka's tool for the quorum
asks both listeners.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
from pathlib import Path

from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.registry import APIS
from tests.clients.capture_groups import CORPUS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.capture import Corpus, capture
from tests.support.kafka_follower import KafkaFollower, metadata_files
from tests.support.kafka_release import KAFKA_4, RELEASES
from tests.support.kafka_tools import run_tool
from tests.support.server_process import free_port, wait_until_listening

HOST = "127.0.0.1"
KEPT = {"api_versions", "describe_quorum", "fetch", "fetch_snapshot"}
QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"


class FollowersCorpus(Corpus):
    """Keeps what `name` asks of the metadata log."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "")

    def keep(self, frame: bytes) -> None:
        key = int.from_bytes(frame[4:6], "big")
        if key in APIS and APIS[key].module in KEPT:
            super().keep(frame)

    def is_from(self, name: str) -> None:
        """Whatever comes next is from this client."""
        self._client = name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=CORPUS)
    corpus = FollowersCorpus(parser.parse_args().into)
    real, proxy = [(free_port(), free_port()) for _ in range(2)]
    names = ("PLAINTEXT", "CONTROLLER")
    settings = {
        "listeners": _listeners(names, real),
        "advertised.listeners": _listeners(names, proxy),
        "controller.listener.names": "CONTROLLER",
        "controller.snapshot.minimum.records": "20",
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(Path(folder) / "ours", settings=settings) as broker,
    ):
        for port, to in zip(proxy, real, strict=True):
            passing = capture((HOST, port), (HOST, to), corpus)
            threading.Thread(target=asyncio.run, args=[passing], daemon=True).start()
            assert wait_until_listening(HOST, port, timeout_s=5)
        with Caller(HOST, real[0]) as caller:
            for number in range(12):
                caller.create_topic(f"topic-{number}", partitions=3)
            described = caller.call(
                DescribeClusterRequest(include_cluster_authorized_operations=False), 1
            )
        for release in RELEASES:
            corpus.is_from(f"java {release.version}, a broker")
            follower = KafkaFollower(
                Path(folder) / release.name,
                controller=f"{HOST}:{proxy[1]}",
                cluster_id=described.cluster_id,
                release=release,
            )
            follower.start()
            follower.wait_for(metadata_files(broker.data))
            follower.kill()
        for asked, port in zip(("server", "controller"), proxy, strict=True):
            corpus.is_from(f"java {KAFKA_4.version}, the quorum's tool")
            words = (f"--bootstrap-{asked}", f"{HOST}:{port}", "describe", "--status")
            print(run_tool(KAFKA_4, QUORUM_TOOL, *words, folder=Path(folder)).out)


def _listeners(names: tuple[str, ...], ports: tuple[int, ...]) -> str:
    pairs = zip(names, ports, strict=True)
    return ",".join(f"{name}://{HOST}:{port}" for name, port in pairs)


if __name__ == "__main__":
    main()
