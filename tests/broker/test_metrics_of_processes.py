"""Numbers of several processes of one directory: each has a port, and tells of its share."""

from __future__ import annotations

import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from tests.broker.test_processes import (
    HOST,
    PARTITIONS,
    TOPIC,
    WITHIN_S,
    Directory,
    directory,
    make_topic,
    produce_everywhere,
)
from tests.support.scraped import rows, scrape

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.linux

__all__ = ["directory"]

GROUP = "billing"


def metrics_ports(one: Directory) -> list[int]:
    """Of each process, as the log says them."""
    said = {
        line["process"]: int(line["url"].rpartition(":")[2].partition("/")[0])
        for line in one.said("metrics are served", 2)
    }
    return [said[number] for number in (0, 1)]


def commit_everywhere(one: Directory, offset: int) -> int:
    """Commit it for each partition; the process that coordinates the group."""
    with one.connect(0) as caller:
        asked = FindCoordinatorRequest(key=GROUP, key_type=0)
        number: int = caller.call(asked, 1).node_id - 1
    topic = OffsetCommitRequest.Topic(
        name=TOPIC,
        partitions=[
            OffsetCommitRequest.Topic.Partition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
            for index in range(PARTITIONS)
        ],
    )
    request = OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    with one.connect(number) as caller:
        (answered,) = caller.call(request, 2).topics
        assert [entry.error_code for entry in answered.partitions] == [0] * PARTITIONS
    return number


def test_each_process_tells_of_what_it_leads_under_its_number(directory: Directory) -> None:
    directory.start(2, "--set", "metrics.port=0")
    make_topic(directory)
    for value in (b"a", b"b"):
        produce_everywhere(directory, value)
    coordinator = commit_everywhere(directory, 1)
    ports = metrics_ports(directory)
    pages = [rows(port) for port in ports]

    for number, page in enumerate(pages):
        label = f'process="{number}"'
        assert all(label in name for name in page)
        led = [
            index
            for index in range(PARTITIONS)
            if f'partition_log_end_offset{{{label},topic="{TOPIC}",partition="{index}"}}' in page
        ]
        assert led == [0 + number, 2 + number]
        assert (
            page[f'partition_log_end_offset{{{label},topic="{TOPIC}",partition="{number}"}}'] == 2
        )
        of_group = f'{label},group="{GROUP}",topic="{TOPIC}"'
        lags = [
            page[f'group_lag_records{{{of_group},partition="{index}"}}']
            for index in (number, 2 + number)
        ]
        assert lags == [1, 1], "whoever coordinates the group"
        assert page[f"group_lags_left_out{{{label}}}"] == 0
        assert page[f"offsets{{{label}}}"] == (PARTITIONS if number == coordinator else 0)
    assert [page[f'failed_logs{{process="{n}"}}'] for n, page in enumerate(pages)] == [0, 0]
    assert [scrape(port, "/readyz").body for port in ports] == ["ready\n", "ready\n"]


def test_ports_of_metrics_are_counted_up_and_one_that_is_taken_refuses_the_start(
    tmp_path: Path,
) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1] - 1
        run = subprocess.run(
            Directory(tmp_path).words("--processes", "2", "--set", f"metrics.port={port}"),
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
    assert run.returncode == 1
    assert f"can't listen on {HOST}:{port + 1}" in run.stderr.splitlines()[-1]
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("name", ["metrics", "console"])
def test_ports_that_overlap_are_refused(tmp_path: Path, name: str) -> None:
    settings = ("--set", f"{name}.port=9093", "--set", "listeners=PLAINTEXT://127.0.0.1:9092")
    command = Directory(tmp_path).words("--processes", "2", *settings)
    place = command.index("--listen")
    del command[place : place + 2]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert f"PLAINTEXT takes the ports 9092 to 9093, and {name} begins at 9093" in run.stderr
