"""A broker that can't start says why in one line, as its user sees it."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests.support import forked_commands
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch

KAFKAS_PROPERTIES = (
    Path(__file__).parents[1] / "storage/metadata/kafka_written/3.9-stopped/meta.properties"
)


def refusal(data: Path, *arguments: str, listen: str = "127.0.0.1:0", code: int = 1) -> str:
    """The one line on standard error of a broker that must refuse to start."""
    command = [sys.executable, "-m", "tools", "serve", "--data", str(data), "--listen", listen]
    ended = forked_commands.run([*command, *arguments], environ=os.environ)
    assert ended.returncode == code, ended.stderr[-3000:]
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr[-3000:]
    assert lines[0].startswith("triglot: ")
    assert "Errno" not in lines[0]
    return lines[0]


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that a broker has used until it was killed, with one topic of one record.
    (A stop would leave a snapshot and an empty metadata log.)"""
    data = tmp_path_factory.mktemp("left") / "data"
    broker = BrokerProcess(data)
    broker.start()
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic("t")
        caller.produce("t", batch(b"kept"))
    broker.kill()
    return data


@pytest.fixture
def used(left_behind: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoiled."""
    return shutil.copytree(left_behind, tmp_path / "data")


def serves(data: Path) -> bool:
    """Whether a broker starts there and still has the record."""
    with BrokerProcess(data) as broker, Caller(broker.host, broker.port) as caller:
        return caller.values("t") == [b"kept"]


def test_a_release_that_kafka_never_had(tmp_path: Path) -> None:
    said = refusal(tmp_path / "data", "--as-version", "2.9", code=2)

    assert said.startswith("triglot: --set: as.version = '2.9': wanted one of Kafka's releases")
    assert said.endswith("4.3, 4.4; the nearest is 2.8")


def test_a_directory_that_another_broker_uses(used: Path) -> None:
    with BrokerProcess(used) as broker:
        line = refusal(used)

        with Caller(broker.host, broker.port) as caller:
            assert caller.values("t") == [b"kept"]
    assert str(used) in line
    assert re.search(r"in use|another|lock", line)


def test_a_port_that_is_in_use(tmp_path: Path, used: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        line = refusal(used, listen=address)

    assert address in line
    assert "in use" in line
    assert serves(used), "the directory is free again"


def test_an_address_that_is_not_this_machines(tmp_path: Path) -> None:
    line = refusal(tmp_path / "data", listen="192.0.2.1:9092")

    assert "192.0.2.1:9092" in line


@pytest.mark.parametrize("listen", ["9092", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999"])
def test_an_address_that_is_none(tmp_path: Path, listen: str) -> None:
    refusal(tmp_path / "data", listen=listen, code=2)


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")

    assert str(tmp_path / "data") in refusal(tmp_path / "data")
    assert str(tmp_path / "data") in refusal(tmp_path / "data" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)

    assert str(tmp_path / "data") in refusal(tmp_path / "data")


def test_the_directory_of_another_cluster(used: Path) -> None:
    line = refusal(used, "--set", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA")

    assert "AAAAAAAAAAAAAAAAAAAAAA" in line
    assert "meta.properties" in line
    assert serves(used)


def test_the_directory_of_another_node(used: Path) -> None:
    line = refusal(used, "--set", "node.id=7")

    assert "7" in line
    assert "node.id" in line
    assert serves(used)


def test_identity_that_can_not_be_read(used: Path) -> None:
    whole = (used / "meta.properties").read_bytes()
    for spoiled in (b"", b"\xff\xfe\x00", whole.replace(b"node.id", b"nodeid"), whole[:20]):
        (used / "meta.properties").write_bytes(spoiled)
        assert "meta.properties" in refusal(used)

    (used / "meta.properties").unlink()
    (used / "meta.properties").mkdir()
    refusal(used)


METADATA = "__cluster_metadata-0"


def metadata_log(data: Path) -> Path:
    return data / METADATA / "00000000000000000000.log"


def test_a_flipped_bit_in_the_metadata_log(used: Path) -> None:
    path = metadata_log(used)
    whole = path.read_bytes()
    for position in (20, len(whole) // 3, len(whole) // 2, len(whole) - 5):
        spoiled = bytearray(whole)
        spoiled[position] ^= 4
        path.write_bytes(spoiled)

        line = refusal(used)

        assert str(path) in line
        assert re.search(r"position \d+", line)
        assert "restore the file from a copy" in line
        assert path.read_bytes() == spoiled, "the evidence is left alone"
    path.write_bytes(whole)
    assert serves(used)


def test_a_metadata_log_that_is_gone_while_its_partitions_are_there(used: Path) -> None:
    metadata_log(used).unlink()
    line = refusal(used)
    assert METADATA in line
    assert "t-0" in line

    shutil.rmtree(used / METADATA)
    assert METADATA in refusal(used)
    assert "t-0" in refusal(used), "it is still not taken for an empty cluster"


def test_a_metadata_log_whose_beginning_is_gone(used: Path) -> None:
    path = metadata_log(used)
    path.rename(path.with_name(f"{5:020d}.log"))

    line = refusal(used)

    assert "needs a snapshot" in line
    assert f"{5:020d}.log" in line


def test_a_snapshot_from_the_future_or_damaged(used: Path) -> None:
    path = used / METADATA / f"{900:020d}-{1:010d}.checkpoint"
    path.write_bytes(b"")
    assert path.name in refusal(used)
    written = Path(__file__).parents[1] / "storage/metadata/kafka_written/3.9-snapshot" / METADATA
    shutil.copyfile(next(written.glob("*.checkpoint")), path)
    assert path.name in refusal(used)

    path.unlink()
    assert serves(used)


def test_metadata_of_another_node(used: Path) -> None:
    text = (used / "meta.properties").read_text()
    (used / "meta.properties").write_text(text.replace("node.id=1", "node.id=7"))

    line = refusal(used, "--set", "node.id=7")

    assert "this node is 7" in line


def test_a_partition_that_the_metadata_log_does_not_know(used: Path) -> None:
    shutil.copytree(used / "t-0", used / "lost-0")
    (used / "lost-0/partition.metadata").write_text("version: 0\ntopic_id: nRMOekHIQQeeynIFtdFb-Q")

    assert "(lost-0)" in refusal(used)


def test_a_directory_id_that_is_none(used: Path) -> None:
    path = used / "meta.properties"
    path.write_text(path.read_text().replace("directory.id=", "directory.id=x"))

    assert f"{path}: directory.id: " in refusal(used)


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("log.retention.hour=1", "log.retention.hours"),
        ("log.retention.hours=soon", "soon"),
        ("=", ""),
        ("no-equals-sign", "KEY=VALUE"),
    ],
)
def test_settings_that_are_none(tmp_path: Path, setting: str, wanted: str) -> None:
    assert wanted in refusal(tmp_path / "data", "--set", setting, code=2)
    assert not (tmp_path / "data").exists()


def test_a_properties_file_that_is_missing_or_none(tmp_path: Path) -> None:
    missing = tmp_path / "missing.properties"
    assert str(missing) in refusal(tmp_path / "data", "--config", str(missing), code=2)

    wrong = tmp_path / "wrong.properties"
    wrong.write_text("# fine\nnum.partitions=0\n")
    line = refusal(tmp_path / "data", "--config", str(wrong), code=2)
    assert "num.partitions" in line
    assert "2" in line, "the line in the file"
