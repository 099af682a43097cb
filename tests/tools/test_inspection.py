"""`triglot check`, `dump` and `repair` as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.disk import DiskFilesystem
from storage.layout import LOG, file_name
from tests.storage.inspection.directories import contents_of, ten_batches
from tests.style.sources import CHECKOUT
from tools.cli import main

if TYPE_CHECKING:
    from tests.storage.inspection.directories import Contents

LOG_NAME = f"orders-0/{file_name(0, LOG)}"


def stored(folder: Path, contents: Contents) -> Path:
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory after a clean stop."""
    return stored(tmp_path / "data", ten_batches(clean=True))


@pytest.fixture
def damaged(data: Path) -> Path:
    """The same with one flipped bit."""
    path = data / LOG_NAME
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    return data


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])


def test_a_flawless_directory_is_exit_code_0(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents_of(data)
    assert run("check", data) == 0
    assert capsys.readouterr().out.startswith("0 errors, 0 warnings, 0 notes; ")
    assert contents_of(data) == before


def test_damage_is_one_line_with_its_place_and_exit_code_1(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", damaged) == 1
    (line, summary) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"error: {LOG_NAME}: position ")
    assert " offset " in line
    assert "the checksum is 0x" in line
    assert summary.startswith("1 error, 0 warnings")


@pytest.mark.parametrize(
    "name", ["orders-0", LOG_NAME, "orders-0/", f"orders-0/{file_name(0, '.index')}"]
)
def test_one_partition_and_one_file_can_be_checked(damaged: Path, name: str) -> None:
    assert run("check", f"{damaged}/{name}") == 1


@pytest.mark.parametrize(
    "name",
    ["meta.properties", "recovery-point-offset-checkpoint", "orders-0/partition.metadata"],
)
def test_a_file_that_is_whole_is_flawless_whatever_lies_beside_it(damaged: Path, name: str) -> None:
    assert run("check", damaged / name) == 0


def test_json_is_a_line_for_each_finding_and_a_summary(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", "--json", "--deep", damaged) == 1
    finding, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert finding["severity"] == "error"
    assert finding["file"] == file_name(0, LOG)
    assert finding["position"] > 0
    assert last["summary"]["error"] == 1
    logs = damaged.rglob("*.log")
    assert last["summary"]["bytes"] == sum(path.stat().st_size for path in logs)


@pytest.mark.parametrize("command", ["check", "repair"])
def test_what_is_no_data_directory_is_exit_code_2(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, tmp_path) == 2
    assert run(command, tmp_path / "nowhere") == 2
    (tmp_path / "letter.txt").write_text("hello")
    assert run(command, tmp_path / "letter.txt") == 2
    assert capsys.readouterr().err.count("triglot: ") == 3


@pytest.mark.parametrize("command", ["check", "repair"])
@pytest.mark.parametrize("below", ["", "orders-0", LOG_NAME])
def test_a_directory_in_use_is_refused(
    command: str, below: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = DiskFilesystem().lock(f"{data}/.lock")
    try:
        assert run(command, data / below) == 2
    finally:
        lock.release()
    assert "locked: a broker is using" in capsys.readouterr().err


def test_a_check_lets_go_of_the_lock(data: Path) -> None:
    assert run("check", data) == 0
    assert not (data / ".lock").exists()
    DiskFilesystem().lock(f"{data}/.lock").release()


def test_progress_is_said_on_request(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.printing.ProgressLine.EVERY_S_ELSEWHERE", 0.0)
    assert run("check", "--progress", data) == 0
    assert " MB/s, 0 s left" in capsys.readouterr().err
    assert run("check", data) == 0
    assert capsys.readouterr().err == ""


def test_dump_prints_lines_or_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dump", "--values", "--from", "4", "--to", "4", data / LOG_NAME) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("batch position=")
    assert second == "  record offset=4 timestamp=1002 key=null value=first 2"
    assert run("dump", "--json", data / "recovery-point-offset-checkpoint") == 0
    assert json.loads(capsys.readouterr().out)["offset"] == 20
    assert run("dump", data / "nowhere") == 2
    assert "No such file" in capsys.readouterr().err


def test_repair_says_what_it_would_do_and_does_it_when_told(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents_of(damaged)
    assert run("repair", damaged) == 1
    said = capsys.readouterr().out.splitlines()
    assert contents_of(damaged) == before
    assert said[-1].endswith("nothing was changed: --apply does it")

    assert run("repair", "--apply", damaged) == 0
    done = capsys.readouterr().out.splitlines()
    assert done[:-1] == said[:-1]
    assert run("check", damaged) == 0
    assert run("repair", damaged) == 0


def test_what_is_left_is_exit_code_1_after_a_repair_too(data: Path) -> None:
    (data / "meta.properties").write_bytes(b"version=9\n")
    assert run("repair", "--apply", data) == 1


def test_names_that_a_terminal_would_obey_are_shown_harmless(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "\x1b[2Jx").write_bytes(b"")
    os.close(os.open(os.fsencode(str(data)) + b"/\xff", os.O_CREAT))
    assert run("check", data) == 0
    out = capsys.readouterr().out
    assert "\\x1b[2Jx" in out
    assert "\\udcff" in out


@pytest.mark.parametrize(
    "name",
    ["meta.properties", ".pystate.json", f"orders-0/{file_name(20, '.snapshot')}"],
)
def test_a_small_file_of_a_terabyte_is_not_read(
    data: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(data / name, 1 << 40)
    assert run("check", data) == 1
    assert f"{1 << 40} bytes" in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_trouble(data: Path) -> None:
    command = f"{sys.executable} -m tools dump --values {data}/orders-0 | head -1"
    ended = subprocess.run(
        ["sh", "-c", command], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert ended.stdout.startswith("file name=")
    assert ended.stderr == ""


def test_a_directory_that_may_only_be_read_is_checked_all_the_same(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise OSError(30, "Read-only file system", path)

    monkeypatch.setattr("storage.disk.DiskFilesystem.lock", lambda _, path: refuse(path))
    assert run("check", data) == 0
