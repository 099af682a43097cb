"""The driver's disk is full: one line, and the next run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline import cli, errors
from tests.pipeline.archive_runs import archived, made
from tests.support.caller import Caller
from tests.support.small_disk import free_bytes, small_disk

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess

DISK_BYTES = 1 << 20
PAGE_BYTES = 4096


@pytest.mark.long
@pytest.mark.parametrize("free_pages", [0, 3, 12])
def test_a_state_on_a_full_disk_is_one_line_and_the_next_run_goes_on(
    free_pages: int,
    broker: BrokerProcess,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        Caller(broker.host, broker.port) as caller,
        small_disk(tmp_path / "disk", size_bytes=DISK_BYTES) as disk,
    ):
        topic = made(caller)
        topic.write(4)
        filler = disk / "filler"
        command = [
            *("archive", "--from", broker.bootstrap, "--topic", topic.name, "--quiet"),
            *("--to", str(tmp_path / "lake"), "--state", str(disk / "state")),
            *("--max-offsets", "20"),
        ]
        filler.write_bytes(bytes(free_bytes(disk) - free_pages * PAGE_BYTES))

        assert cli.main(command) in {
            errors.EXIT_CODES[errors.Refused],
            errors.EXIT_CODES[errors.SparkFailed],
        }
        (line,) = capsys.readouterr().err.splitlines()
        assert "No space left on device" in line

        filler.unlink()
        assert cli.main(command) == 0, capsys.readouterr().err
        assert archived(tmp_path / "lake") == topic.rows()
