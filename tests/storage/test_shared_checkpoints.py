"""Checkpoints that several processes write: each the entries of what it leads."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from storage.checkpoints import CheckpointFile, Sharing, decode_offsets, encode_offsets
from storage.disk import DiskFilesystem
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Partition = tuple[str, int]

PATH, TURNS = "/d/log-start-offset-checkpoint", "/d/.checkpoints"
ROUNDS = 50


@pytest.fixture
def files() -> MemoryFilesystem:
    files = MemoryFilesystem()
    files.make_dir("/d")
    return files


def led_by(number: int) -> Callable[[Partition], bool]:
    """Of two processes the second leads the odd partitions."""
    return lambda partition: partition[1] % 2 == number


def checkpoint(files: MemoryFilesystem, number: int) -> CheckpointFile:
    return CheckpointFile(files, PATH, Sharing(files, TURNS, led_by(number)))


def noted(files: MemoryFilesystem) -> Mapping[Partition, int]:
    return decode_offsets(files.read_bytes(PATH), PATH)


def test_each_replaces_the_entries_of_what_it_leads_and_leaves_the_others(
    files: MemoryFilesystem,
) -> None:
    first, second = checkpoint(files, 0), checkpoint(files, 1)
    first.holding({("t", 0): 1, ("t", 2): 2}).sync()
    second.holding({("t", 1): 3}).sync()
    first.holding({("t", 0): 5}).sync()

    assert noted(files) == {("t", 0): 5, ("t", 1): 3}, "t 2 is gone: its leader says so"
    second.holding({}).sync()
    assert noted(files) == {("t", 0): 5}


def test_a_late_writer_puts_no_old_offsets_over_its_own_new_ones(files: MemoryFilesystem) -> None:
    first, second = checkpoint(files, 0), checkpoint(files, 1)
    older, newer = first.holding({("t", 0): 1}), first.holding({("t", 0): 2})
    newer.sync()
    second.holding({("t", 1): 3}).sync()
    older.sync()

    assert noted(files) == {("t", 0): 2, ("t", 1): 3}


def test_what_others_wrote_meanwhile_is_kept_where_own_entries_are_as_before(
    files: MemoryFilesystem,
) -> None:
    first, second = checkpoint(files, 0), checkpoint(files, 1)
    first.holding({("t", 0): 1}).sync()
    second.holding({("t", 1): 3}).sync()
    files.write_atomic(PATH, encode_offsets({("t", 1): 4}))  # as if the first entry were lost
    first.holding({("t", 0): 1}).sync()

    assert noted(files) == {("t", 0): 1, ("t", 1): 4}


@pytest.mark.parametrize("bit", [0, 77])
def test_one_wrong_bit_costs_nobody_an_entry(files: MemoryFilesystem, bit: int) -> None:
    data = bytearray(encode_offsets({("t", 1): 3, ("t", 0): 1}))
    data[bit // 8] ^= 1 << bit % 8
    files.write_atomic(PATH, bytes(data))

    checkpoint(files, 0).holding({("t", 0): 2}).sync()

    assert noted(files) == {("t", 0): 2, ("t", 1): 3}


def test_a_file_that_makes_no_sense_is_written_anew(files: MemoryFilesystem) -> None:
    files.write_atomic(PATH, b"\xff" * 100)

    checkpoint(files, 0).holding({("t", 0): 2}).sync()

    assert noted(files) == {("t", 0): 2}


@pytest.mark.linux
def test_processes_that_write_at_once_lose_nothing_of_each_other(tmp_path: Path) -> None:
    program = (
        "import sys; from storage.checkpoints import *; from storage.disk import DiskFilesystem\n"
        "path, number, files = sys.argv[1], int(sys.argv[2]), DiskFilesystem()\n"
        "mine = lambda key: key[1] == number\n"
        "one = CheckpointFile(files, path, Sharing(files, path + '.turn', mine))\n"
        f"for offset in range(1, {ROUNDS} + 1): one.holding({{('t', number): offset}}).sync()"
    )
    path = str(tmp_path / "checkpoint")
    writers = [
        subprocess.Popen([sys.executable, "-c", program, path, str(number)]) for number in range(3)
    ]
    assert [one.wait(100) for one in writers] == [0, 0, 0]

    data = DiskFilesystem().read_bytes(path)
    assert decode_offsets(data, path) == {("t", number): ROUNDS for number in range(3)}
