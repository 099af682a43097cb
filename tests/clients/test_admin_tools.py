"""Apache Kafka's own tools administer a cluster of ours, on both kinds of listener."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.support.caller import batch
from tests.support.fetched import NotAvailable
from tests.support.kafka_release import KAFKA_3_9, RELEASES
from tests.support.kafka_tools import run_tool
from tests.support.running_controller import HOST, RunningController

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.kafka_release import Release

    Tool = Callable[..., str]

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java]

TOOLS = "org.apache.kafka.tools"
CONFIGS, FEATURES = "kafka.admin.ConfigCommand", f"{TOOLS}.FeatureCommand"
REASSIGN, LOG_DIRS = f"{TOOLS}.reassign.ReassignPartitionsCommand", f"{TOOLS}.LogDirsCommand"
METRICS, TRANSACTIONS = f"{TOOLS}.ClientMetricsCommand", f"{TOOLS}.TransactionsCommand"
RECORDS = batch(b"a" * 1000)


@pytest.mark.parametrize("release", [pytest.param(one, id=one.name) for one in RELEASES])
def test_the_tools_of_kafka_do_their_work(tmp_path: Path, release: Release) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    with RunningController(tmp_path / "data") as node:
        client = ("--bootstrap-server", f"{HOST}:{node.broker.listening.ports['PLAINTEXT']}")
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
        settings(run, client)
        partitions(run, client, folder)


def features(run: Tool, client: tuple[str, str], controller: tuple[str, str]) -> None:
    told = run(FEATURES, *client, "describe")
    assert "3.3-IV3" in told
    assert told.count("3.9-IV0") == 2
    assert "UNKNOWN" not in told
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


def settings(run: Tool, client: tuple[str, str]) -> None:
    broker = (*client, "--entity-type", "brokers", "--entity-name", "1")
    run(CONFIGS, *broker, "--alter", "--add-config", "background.threads=12,log.cleaner.threads=2")
    told = run(CONFIGS, *broker, "--describe")
    assert "background.threads=12 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG" in told
    assert "log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG" in told
    sent = "org.apache.kafka.producer."
    run(METRICS, *client, "--alter", "--name", "all", "--metrics", sent, "--interval", "1000")
    told = run(METRICS, *client, "--describe")
    assert "interval.ms=1000" in told
    assert f"metrics={sent}" in told


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


@pytest.mark.parametrize("release", [pytest.param(one, id=one.name) for one in RELEASES])
def test_the_tools_of_kafka_are_told_what_there_is_not(tmp_path: Path, release: Release) -> None:
    acls = "kafka.admin.AclCommand" if release is KAFKA_3_9 else f"{TOOLS}.AclCommand"
    asked = (
        ((acls, "--list"), 1, "No Authorizer is configured on the broker"),
        ((TRANSACTIONS, "list"), 0, "TransactionalId"),
        ((TRANSACTIONS, "describe", "--transactional-id", "bank"), 1, "could not be found"),
        ((TRANSACTIONS, "describe-producers", "--topic", "orders", "--partition", "0"), 0, "Epoch"),
    )
    with RunningController(tmp_path / "data") as node:
        client = ("--bootstrap-server", f"{HOST}:{node.broker.listening.ports['PLAINTEXT']}")
        with node.connect_as_client() as caller:
            caller.create_topic("orders")
        for (tool, *words), code, text in asked:
            try:
                ended = run_tool(release, tool, *client, *words, folder=tmp_path)
            except NotAvailable as reason:
                end_of_test("java", str(reason))
            assert ended.code == code, ended.out + ended.err
            assert text in ended.out + ended.err
