"""The pipeline and brokers with TLS and SASL: nothing but the path of a file is in a plan."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

from client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from client.security import read_client_security
from pipeline.errors import Refused, WrongUse
from pipeline.jobs.mirror import Mirror
from pipeline.reading.options import SourceOptions
from tests.support.secured import SecuredBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def written(broker: SecuredBroker, path: Path, password: str = "alice-secret") -> str:
    path.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="alice" password="{password}";\n'
        f"ssl.truststore.location={broker.authority.certificate}\n"
    )
    path.chmod(0o600)
    return str(path)


@pytest.mark.long
def test_spark_writes_and_reads_as_the_user_of_a_file(
    spark: SparkSession, secured: SecuredBroker, tmp_path: Path
) -> None:
    file = written(secured, tmp_path / "client.properties")
    servers = secured.bootstrap_of("SASL_SSL")
    with Cluster(servers, security=read_client_security(file)) as cluster:
        cluster.create_topic("orders", 2, {})
    options = {"kafka.bootstrap.servers": servers, "commandConfig": file}

    rows = spark.range(100).selectExpr("cast(id as string) as value")
    rows.selectExpr("cast(value as binary) as value").write.format("triglot").options(
        topic="orders", **options
    ).mode("append").save()
    read = spark.read.format("triglot").options(subscribe="orders", **options).load()

    assert sorted(int(row[0]) for row in read.selectExpr("string(value)").collect()) == [
        *range(100)
    ]
    assert "alice-secret" not in read._jdf.queryExecution().toString()


def test_what_goes_to_a_task_has_no_password(secured: SecuredBroker, tmp_path: Path) -> None:
    options = SourceOptions.parse({
        "kafka.bootstrap.servers": secured.bootstrap_of("SASL_SSL"),
        "commandConfig": written(secured, tmp_path / "client.properties"),
        "subscribe": "orders",
    })  # fmt: skip
    pickled = pickle.dumps(options)
    assert b"alice-secret" not in pickled
    assert "alice-secret" not in repr(options)
    assert pickle.loads(pickled) == options


def test_a_mirror_has_a_file_for_each_side(secured: SecuredBroker, tmp_path: Path) -> None:
    right = written(secured, tmp_path / "right.properties")
    wrong = written(secured, tmp_path / "wrong.properties", "guessed")
    servers = secured.bootstrap_of("SASL_SSL")
    with Cluster(servers, security=read_client_security(right)) as cluster:
        cluster.create_topic("mirrored", 1, {})
        place = TopicPartition("mirrored", 0)
        assert cluster.offsets([place], EARLIEST) == cluster.offsets([place], LATEST)

    def mirror(config: str, to_config: str) -> Mirror:
        return Mirror(
            servers=servers,
            to=servers,
            state=str(tmp_path / "state"),
            topics=("mirrored",),
            rename="copy.{topic}",
            command_config=config,
            to_command_config=to_config,
        )

    mirror(right, right).check()
    for given in ((wrong, right), (right, wrong)):
        with pytest.raises(Refused, match="refuses user 'alice'"):
            mirror(*given).check()


def test_a_file_is_for_brokers_alone() -> None:
    with pytest.raises(WrongUse, match="commandConfig is for brokers"):
        SourceOptions.parse({"path": "data", "subscribe": "a", "commandConfig": "file"})
