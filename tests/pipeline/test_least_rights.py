"""Jobs at a broker that allows them what docs/pipeline.md says they need, and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

from pipeline.errors import Failure, find
from pipeline.jobs.archive import archive
from pipeline.jobs.audit import audit
from pipeline.jobs.mirror import mirror
from pipeline.jobs.replay import replay
from pipeline.jobs.stream import stream
from protocol.acls import (
    ANY,
    OPERATION_NAMES,
    RESOURCE_TYPE_NAMES,
    WILDCARD,
    PatternType,
    Permission,
)
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.records.builder import build_batch
from tests.pipeline.mirroring import archive as archive_files
from tests.support.broker_process import CHECKOUT
from tests.support.caller import NOW_MS, Caller
from tests.support.secured import SecuredBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OPERATIONS = {name: number for number, name in OPERATION_NAMES.items()}
TYPES = {name: number for number, name in RESOURCE_TYPE_NAMES.items()}


class Right(NamedTuple):
    """One rule of the page."""

    operation: str
    kind: str
    name: str
    prefixed: bool

    def __str__(self) -> str:
        return f"{self.operation}-{self.kind}-{self.name}"


def rights_of(cells: str) -> list[Right]:
    found = re.findall(r"`([a-z-]+) (topic|group|transactional-id) (\w+)`( \(prefixed\))?", cells)
    return [Right(operation, kind, name, bool(wide)) for operation, kind, name, wide in found]


PAGE = (CHECKOUT / "docs/pipeline.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## With the least rights\n")[1].split("\n## ")[0]
ROWS = {
    job.replace("`", ""): (rights_of(read), rights_of(written))
    for job, read, written in re.findall(r"^\| (.*?) \| (.*?) ?\| (.*?) ?\|$", SECTION, flags=re.M)
    if rights_of(read + written)
}


class Setting:
    """A broker with records in `orders`, and what bob finds."""

    def __init__(self, broker: SecuredBroker, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.servers = broker.bootstrap_of("SASL_SSL")
        self._open = (broker.host, broker.ports["PLAINTEXT"])
        config = folder / "bob.properties"
        config.touch(mode=0o600)
        config.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN} required username="bob" password="bob-secret";\n'
            f"ssl.truststore.location={broker.authority.certificate}\n"
        )
        self.config = str(config)
        self.options = {"kafka.bootstrap.servers": self.servers, "commandConfig": self.config}

    def begin(self, rights: list[Right]) -> None:
        """Topics of one record, none that is copied to, and these rules of bob's."""
        with Caller(*self._open) as caller:
            there = {topic.name for topic in caller.call(MetadataRequest(topics=None)).topics}
            for topic in there & {"counts", "copy"}:
                caller.delete_topic(topic)
            caller.create_topic("counts")
            if "orders" not in there:
                caller.create_topic("orders")
                caller.produce("orders", build_batch([(NOW_MS, b"k", b"1", ())]))
            every = DeleteAclsRequest.Filter(
                resource_type_filter=ANY,
                resource_name_filter=None,
                pattern_type_filter=ANY,
                principal_filter=None,
                host_filter=None,
                operation=ANY,
                permission_type=ANY,
            )
            caller.call(DeleteAclsRequest(filters=[every]))
            creations = [
                CreateAclsRequest.Creation(
                    resource_type=TYPES[right.kind],
                    resource_name=right.name,
                    resource_pattern_type=(
                        PatternType.PREFIXED if right.prefixed else PatternType.LITERAL
                    ),
                    principal="User:bob",
                    host=WILDCARD,
                    operation=OPERATIONS[right.operation],
                    permission_type=Permission.ALLOW,
                )
                for right in rights
            ]
            answer = caller.call(CreateAclsRequest(creations=creations))
            assert {one.error_code for one in answer.results} <= {0}


def archived(at: Setting, where: Path) -> None:
    archive(
        str(where / "lake"),
        servers=at.servers,
        topics=["orders"],
        command_config=at.config,
        spark=at.spark,
    )


def audited(at: Setting, where: Path) -> None:
    audit(servers=at.servers, topics=["orders"], command_config=at.config, spark=at.spark)


def mirrored(at: Setting, where: Path, transactional_id: str | None = None) -> None:
    mirror(
        at.servers,
        at.servers,
        state=str(where / "state"),
        topics=["orders"],
        rename="copy",
        command_config=at.config,
        to_command_config=at.config,
        transactional_id=transactional_id,
        spark=at.spark,
    )


def replayed(at: Setting, where: Path, transactional_id: str | None = None) -> None:
    replay(
        str(at.folder / "lake"),
        at.servers,
        topics=["orders"],
        state=str(where / "state"),
        rename="copy",
        command_config=at.config,
        transactional_id=transactional_id,
        spark=at.spark,
    )


def streamed(at: Setting, where: Path) -> None:
    stream(
        at.servers, ["orders"], str(where / "counts"), "counts",
        command_config=at.config, spark=at.spark,
    )  # fmt: skip


def written_in_a_transaction(at: Setting, where: Path) -> None:
    rows = at.spark.range(3).selectExpr("cast(cast(id as string) as binary) as value")
    rows.coalesce(1).write.format("triglot").options(
        topic="counts", transactionalId="counting", **at.options
    ).mode("append").save()


JOBS: dict[str, Callable[[Setting, Path], None]] = {
    "archive": archived,
    "audit": audited,
    "mirror": mirrored,
    "mirror --transactional-id move": lambda at, where: mirrored(at, where, "move"),
    "replay": replayed,
    "replay --transactional-id nightly": lambda at, where: replayed(at, where, "nightly"),
    "stream, and the data source": streamed,
    "the data source with transactionalId": written_in_a_transaction,
}


@pytest.fixture(scope="module")
def at(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    folder = tmp_path_factory.mktemp("rights")
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }
    with SecuredBroker(folder, settings) as broker:
        at = Setting(broker, spark, folder)
        at.begin([])
        open_ = broker.bootstrap_of("PLAINTEXT")
        archive_files(open_, "orders", folder / "lake", shape="records", partitions=1)
        yield at
        assert "Traceback" not in broker.output()


def test_the_page_tells_of_each_job() -> None:
    assert ROWS.keys() == JOBS.keys()


@pytest.mark.parametrize("job", JOBS)
def test_a_job_needs_the_rights_of_the_page_and_each_of_them(
    at: Setting, job: str, tmp_path: Path
) -> None:
    read, written = ROWS[job]
    at.begin([*read, *written])
    JOBS[job](at, tmp_path / "with-all")

    for number, missing in enumerate([*read, *written]):
        at.begin([one for one in (*read, *written) if one is not missing])
        failure = why(at, job, tmp_path / f"without-{number}")
        assert failure is not None, f"{job} did not need {missing}"
        assert missing.name in str(failure), failure


def why(at: Setting, job: str, where: Path) -> Exception | None:
    """The failure of a job that lacks a right, None if it does not fail."""
    from pyspark.errors import PySparkException

    try:
        JOBS[job](at, where)
    except Failure as failure:
        return failure
    except PySparkException as error:
        return find(str(error)) or error
    return None
