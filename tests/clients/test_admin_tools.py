"""Apache Kafka's own tools administer a cluster of ours, on both kinds of listener."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.support.caller import batch
from tests.support.fetched import NotAvailable
from tests.support.kafka_release import RELEASES
from tests.support.kafka_tools import run_tool
from tests.support.running_controller import HOST, RunningController

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.kafka_release import Release

    Tool = Callable[..., str]

pytestmark = [pytest.mark.clients, pytest.mark.java]

TOOLS = "org.apache.kafka.tools"
CONFIGS, FEATURES = "kafka.admin.ConfigCommand", f"{TOOLS}.FeatureCommand"
REASSIGN, LOG_DIRS = f"{TOOLS}.reassign.ReassignPartitionsCommand", f"{TOOLS}.LogDirsCommand"
RECORDS = batch(b"a" * 1000)


@pytest.mark.parametrize("release", [pytest.param(one, id=one.name) for one in RELEASES])
def test_the_tools_of_kafka_do_their_work(tmp_path: Path, release: Release) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    with RunningController(tmp_path / "data") as node:
        client = ("--bootstrap-server", f"{HOST}:{node.broker.ports['PLAINTEXT']}")
        controller = ("--bootstrap-controller", f"{HOST}:{node.port}")

        def run(tool: str, *words: str) -> str:
            ended = run_tool(release, tool, *words, folder=folder)
            assert ended.code == 0, ended.out + ended.err
            return ended.out

        with node.connect_as_client() as caller:
            caller.create_topic("orders")
            caller.produce("orders", RECORDS)
        try:
            features(run, client, controller)
        except NotAvailable as reason:
            end_of_test("java", str(reason))
        users(run, client)
        partitions(run, client, folder)


def features(run: Tool, client: tuple[str, str], controller: tuple[str, str]) -> None:
    assert "downgraded to 20" in run(FEATURES, *client, "downgrade", "--metadata", "3.8")
    assert "3.8-IV0" in run(FEATURES, *controller, "describe")
    assert "upgraded to 21" in run(FEATURES, *controller, "upgrade", "--metadata", "3.9")


def users(run: Tool, client: tuple[str, str]) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice")
    run(CONFIGS, *client, "--alter", *alice, "--add-config", "producer_byte_rate=1024")
    password = "SCRAM-SHA-256=[iterations=8192,password=alice-secret]"
    run(CONFIGS, *client, "--alter", *alice, "--add-config", password)

    told = run(CONFIGS, *client, "--describe", "--entity-type", "users")

    assert "Quota configs for user-principal 'alice' are producer_byte_rate=1024.0" in told
    assert "for user-principal 'alice' are SCRAM-SHA-256=iterations=8192" in told


def partitions(run: Tool, client: tuple[str, str], folder: Path) -> None:
    move = {"topic": "orders", "partition": 0, "replicas": [1]}
    (folder / "move.json").write_text(json.dumps({"version": 1, "partitions": [move]}))
    moves = ("--reassignment-json-file", "move.json")
    assert "Successfully started" in run(REASSIGN, *client, "--execute", *moves)
    assert "orders-0 is completed" in run(REASSIGN, *client, "--verify", *moves)

    told = json.loads(run(LOG_DIRS, *client, "--describe").splitlines()[-1])

    (directory,) = told["brokers"][0]["logDirs"]
    (partition,) = directory["partitions"]
    assert (partition["partition"], partition["size"]) == ("orders-0", len(RECORDS))
