"""The code sent to executors: the zip by itself, and clusters whose Python lacks our package.

The server of Spark Connect that is started for it also archives and mirrors.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from pipeline.archiving.archive_files import list_files
from pipeline.shipping import PACKAGES, archive
from protocol.records import transcode
from tests.pipeline.conftest import JVM_FLAGS
from tests.pipeline.mirroring import digest, stored
from tests.support.broker_process import CHECKOUT
from tests.support.caller import Caller, batch
from tests.support.installed import environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.long

TOPIC = "shipped"

BEGINS = """
import sys
sys.path.insert(0, {checkout!r})
from pyspark.sql import SparkSession
from pipeline.shipping import ship
from pipeline.source import register

SERVERS, TOPIC = {servers!r}, {topic!r}

def rows():
    options = {{"kafka.bootstrap.servers": SERVERS, "subscribe": TOPIC}}
    frame = spark.read.format("triglot").options(**options).load().orderBy("partition", "offset")
    return [(row.partition, row.offset, bytes(row.value)) for row in frame.collect()]
"""

ON_A_CLUSTER = """
spark = (
    SparkSession.builder.master("local-cluster[1,2,512]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .config("spark.driver.extraJavaOptions", {flags!r})
    .config("spark.executor.extraJavaOptions", {flags!r}).getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
register(spark)
try:
    rows()
except Exception as error:
    print("ModuleNotFoundError: No module named 'pipeline'" in str(error))
ship(spark)
ship(spark)
register(spark)
print(rows())

def loops(_):
    from pipeline import shipping
    from protocol.records import transcode
    yield ".zip/" in shipping.__file__, transcode.IMPLEMENTATION

print(set(spark.sparkContext.parallelize(range(2), 2).mapPartitions(loops).collect()))
spark.stop()
"""

WITH_CONNECT = """
spark = SparkSession.builder.remote("local[2]").getOrCreate()
register(spark)
try:
    rows()
except Exception as error:
    print("ModuleNotFoundError: No module named 'pipeline'" in str(error))
ship(spark)
ship(spark)
register(spark)
print(rows())

from client.cluster import Cluster, TopicPartition
from pipeline.jobs.archive import archive
from pipeline.jobs.mirror import mirror
from protocol.records.builder import build_batch

given = {"topics": ["grows"], "max_offsets": 4}
partitions = [TopicPartition("grows", number) for number in range(2)]
with Cluster(SERVERS) as cluster:
    cluster.create_topic("grows", 2)
    for batches in (3, 1):
        for partition in partitions:
            for value in (b"a", b"b", b"c")[:batches]:
                cluster.produce(partition, [build_batch([(1, None, value, ())])])
        for done in (
            archive("lake", servers=SERVERS, group="archivists", **given),
            mirror(SERVERS, SERVERS, state="state", rename="copy-{topic}", **given),
        ):
            print(done.job, done.records, done.batches)
        print(*cluster.committed_offsets("archivists", partitions).values())
spark.stop()
"""


@pytest.fixture(scope="module")
def servers(broker: BrokerProcess) -> str:
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic(TOPIC, 2)
        for partition in range(2):
            caller.produce(TOPIC, batch(b"a%d" % partition, b"b"), partition=partition)
    return broker.bootstrap


ROWS = [(0, 0, b"a0"), (0, 1, b"b"), (1, 0, b"a1"), (1, 1, b"b")]


def output_of(program: str, servers: str, folder: Path) -> list[str]:
    """What a driver prints, in an environment that leads nobody to the checkout."""
    head = BEGINS.format(checkout=str(CHECKOUT), servers=servers, topic=TOPIC)
    run = subprocess.run(
        [sys.executable, "-P", "-c", head + program.replace("{flags!r}", repr(JVM_FLAGS))],
        cwd=folder,
        env=environment(None, PYSPARK_PYTHON=sys.executable),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    return run.stdout.splitlines()


def test_the_zip_has_the_same_bytes_each_time_and_no_broker() -> None:
    sent = archive()
    assert sent == archive()
    with zipfile.ZipFile(io.BytesIO(sent)) as files:
        assert {name.partition("/")[0] for name in files.namelist()} == set(PACKAGES)
        assert (
            files.read("pipeline/shipping.py")
            == (CHECKOUT / "pipeline" / "shipping.py").read_bytes()
        )


def test_the_loops_in_c_are_loaded_out_of_the_zip(tmp_path: Path) -> None:
    (tmp_path / "sent.zip").write_bytes(archive())
    program = (
        "import sys; sys.path.insert(0, 'sent.zip')\n"
        "from protocol.records import transcode\n"
        "from pipeline.columns.decode import decode_pieces\n"
        "print(transcode.IMPLEMENTATION, transcode.__file__)"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    where = "sent.zip/protocol/records/transcode.py"
    assert run.stdout.split() == [transcode.IMPLEMENTATION, where]


@pytest.mark.timeout(300)
def test_executors_of_a_cluster_read_with_what_was_sent_to_them(
    servers: str, tmp_path: Path, spark_runs: None
) -> None:
    without, rows, loops = output_of(ON_A_CLUSTER, servers, tmp_path)
    assert without == "True"  # The test would show nothing if they had the package anyway.
    assert rows == repr(ROWS)
    assert loops == repr({(True, transcode.IMPLEMENTATION)})


@pytest.mark.timeout(300)
def test_a_server_of_spark_connect_reads_archives_and_mirrors_with_what_was_sent_to_it(
    servers: str, tmp_path: Path, spark_runs: None
) -> None:
    if importlib.util.find_spec("grpc_status") is None:
        pytest.skip("the client of Spark Connect needs pip install pyspark[connect]")
    assert output_of(WITH_CONNECT, servers, tmp_path) == [
        *("True", repr(ROWS)),
        *("archive 6 2", "mirror 6 2", "3 3"),
        *("archive 2 1", "mirror 2 1", "4 4"),
    ]
    archived = list_files(str(tmp_path / "lake"))
    assert [(file.partition, file.start, file.end, file.rows) for file in archived] == [
        (partition, *offsets, offsets[1] - offsets[0])
        for partition in range(2)
        for offsets in ((0, 2), (2, 3), (3, 4))
    ]
    for partition in range(2):
        copy = stored(servers, "copy-grows", partition)
        assert digest(copy) == digest(stored(servers, "grows", partition))
        assert digest(copy)[0] == 4
