"""The everyday commands at Apache Kafka of every age, each really running."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from testing.proxy import FaultProxy
from tests.clients.available import end_of_test
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.support.old_kafka import VERSIONS, OldKafka
from tests.support.tap_process import TapProcess
from tests.support.typed_bytes import typed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.server_process import ServerProcess

# Inside the first test that wants them, jars may have to be fetched.
pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.timeout(600)]

WITHOUT_ADMINISTRATION = ("0.8.2.2", "0.9.0.1")
RELEASES = {"3.9": KAFKA_3_9, "4": KAFKA_4}
TRIED = [*VERSIONS, *RELEASES] if os.environ.get("TEST_MOVING_ALL") else ["0.8.2.2", "3.9", "4"]


@pytest.fixture(scope="module", params=TRIED)
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, ServerProcess]]:
    """A broker, and how old it is."""
    version, folder = request.param, tmp_path_factory.mktemp("kafka")
    try:
        broker: ServerProcess
        if version in RELEASES:
            broker = KafkaProcess(folder / "kafka", release=RELEASES[version])
        else:
            broker = OldKafka(folder / "kafka", version=version)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with broker:
        yield version, broker


@pytest.fixture(scope="module")
def topic(kafka: tuple[str, ServerProcess]) -> str:
    version, broker = kafka
    if version in WITHOUT_ADMINISTRATION:
        assert isinstance(broker, OldKafka)
        broker.create_topic("orders")
    else:
        words = ("topics", "create", "orders", "--partitions", "1", "--set", "retention.ms=-1")
        assert typed(*words, "--bootstrap", broker.bootstrap).code == 0
    return "orders"


def test_records_are_written_and_read(
    kafka: tuple[str, ServerProcess], topic: str, tmp_path: Path
) -> None:
    version, broker = kafka
    there = ("--bootstrap", broker.bootstrap)
    keys = [f"key-{number}" for number in range(1000)]
    (tmp_path / "lines").write_text("".join(f"{key}:{key}-value\n" for key in keys))
    for codec in ("none", "gzip", "snappy", "lz4"):
        words = ("--key-separator", ":", "--codec", codec, "--json")
        ran = typed("produce", topic, str(tmp_path / "lines"), *words, *there)
        assert ran.answer["records"] == len(keys)
    found = [json.loads(line) for line in typed(
        *("consume", topic, "--until-end", "--json", *there)
    ).out.splitlines()]  # fmt: skip
    assert [(one["key"], one["value"]) for one in found] == 4 * [
        (key, f"{key}-value") for key in keys
    ]
    (bounds,) = typed("offsets", topic, "--json", *there).answer
    assert (bounds["start"], bounds["end"]) == (0, 4 * len(keys))
    last = typed("consume", topic, "--last", "1", "--until-end", *there)
    assert last.out == b"key-999-value\n"
    if version not in (*WITHOUT_ADMINISTRATION, "0.10.2.2"):
        ran = typed("produce", topic, str(tmp_path / "lines"), "--header", "a=b", *there)
        assert ran.code == 0


def test_an_answer_that_is_lost_doubles_no_line(
    kafka: tuple[str, ServerProcess], tmp_path: Path
) -> None:
    version, broker = kafka
    if version in (*WITHOUT_ADMINISTRATION, "0.10.2.2"):
        pytest.skip("idempotent producers came with Kafka 0.11")
    there = ("--bootstrap", broker.bootstrap)
    assert typed("topics", "create", "once", "--partitions", "1", *there).code == 0
    (tmp_path / "lines").write_text("one\ntwo\n")
    with FaultProxy(broker.bootstrap) as proxy:
        fault = proxy.faults.drop_answer("Produce", times=2)
        words = ("--timeout", "60", "--bootstrap", proxy.bootstrap)
        ran = typed("produce", "once", str(tmp_path / "lines"), *words)
        assert (ran.code, fault.fired) == (0, 2)
    assert typed("consume", "once", "--until-end", *there).out == b"one\ntwo\n"


def test_a_topic_is_described_changed_and_deleted(kafka: tuple[str, ServerProcess]) -> None:
    version, broker = kafka
    there = ("--bootstrap", broker.bootstrap)
    if version in WITHOUT_ADMINISTRATION:
        assert "Kafka before 0.10.1" in typed("topics", "create", "other", *there).refusal
        return
    words = ("topics", "create", "other", "--partitions", "2", "--set", "segment.ms=60000")
    assert typed(*words, *there).code == 0
    (topic,) = typed("topics", "describe", "other", "--json", *there).answer
    assert len(topic["partitions"]) == 2
    if version != "0.10.2.2":
        words = ("topics", "alter", "other", "--partitions", "3", "--set", "retention.ms=60000")
        assert typed(*words, "--unset", "segment.ms", *there).code == 0
        told = typed("configs", "describe", "topic", "other", "--json", *there).answer
        assert {one["name"]: one["value"] for one in told["settings"]} == {"retention.ms": "60000"}
    delete = ("topics", "delete", "other", "--execute", *there)
    if version == "0.10.2.2":  # by its own default it deletes none
        assert "delete.topic.enable" in typed(*delete, "--timeout", "1").refusal
    else:
        assert typed(*delete).code == 0


def test_a_tap_tells_what_is_said(
    kafka: tuple[str, ServerProcess], topic: str, tmp_path: Path
) -> None:
    _, broker = kafka
    (tmp_path / "lines").write_text("overheard\n")
    saved = tmp_path / "talk"
    with TapProcess(broker.bootstrap, arguments=("--save", str(saved))) as tap:
        there = ("--bootstrap", tap.bootstrap)
        assert typed("produce", topic, str(tmp_path / "lines"), *there).code == 0
        assert typed("consume", topic, "--last", "1", "--until-end", *there).out == b"overheard\n"
    told = typed("tap", "show", str(saved), "--json").answers
    said = {entry.get("api") for entry in told}
    assert {"Produce", "Fetch", "ListOffsets", "Metadata"} <= said
    assert "error_code: NONE" in next(
        entry["text"]
        for entry in told
        if (entry["what"], entry.get("api")) == ("answer", "Produce")
    )
