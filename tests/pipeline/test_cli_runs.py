"""`triglot pipeline` while a job runs: what is said of it, and how it ends, with jobs that need no
Spark."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import termios
from pathlib import Path

import pytest

from pipeline import cli
from pipeline.errors import EXIT_CODES, KINDS, Failure
from tests.pipeline.copy_job import Capture, copy_job, failing


def test_a_run_ends_with_one_line_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    copy_job(monkeypatch)
    assert cli.main(["copy", "--to", "x"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("copy: 300 records, 0.0 MB in 2 micro-batches, ")
    assert told.out.count("\n") == 1
    assert told.err.startswith("copy  33%  ")


def test_a_terminal_s_line_is_within_its_width_where_the_output_is_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    copy_job(monkeypatch)
    seen, written = os.openpty()
    termios.tcsetwinsize(written, (24, 20))
    with os.fdopen(written, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert cli.main(["copy", "--to", "x"]) == 0
        drawn = os.read(seen, 4096).decode().split("\r\x1b[2K")
    os.close(seen)
    assert drawn[1].startswith("copy  ")
    assert max(map(len, drawn)) < 20


def test_quiet_leaves_only_the_last_line(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    copy_job(monkeypatch)
    assert cli.main(["copy", "--to", "x", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_json_is_an_object_per_micro_batch_and_the_outcome(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    copy_job(monkeypatch)
    assert cli.main(["copy", "--to", "x", "--json"]) == 0
    told = capsys.readouterr()
    events = [json.loads(line) for line in told.out.splitlines()]
    assert [event["event"] for event in events] == ["progress", "progress", "done"]
    assert events[1]["run"]["percent"] == 100.0
    assert told.err == ""


@pytest.mark.parametrize("kind", list(EXIT_CODES))
@pytest.mark.parametrize("when", ["on_check", "on_run"])
def test_a_failure_is_one_line_with_the_exit_code_of_its_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, kind: type[Failure], when: str
) -> None:
    copy_job(monkeypatch, **{when: failing(kind("orders-0 is\x1b[2J not so"))})
    assert cli.main(["copy", "--to", "x", "--json"]) == EXIT_CODES[kind]
    told = capsys.readouterr()
    assert told.err == "triglot pipeline: orders-0 is\\x1b[2J not so\n"
    assert json.loads(told.out.splitlines()[-1]) == {
        "event": "error",
        "error": "orders-0 is\x1b[2J not so",
        "code": kind.__name__,
        "exit": EXIT_CODES[kind],
    }


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (ModuleNotFoundError("No module named 'pyarrow'"), "No module named 'pyarrow': pip i", 10),
        (OSError(28, "No space left on device", "/lake/a"), "/lake/a: No space left on device", 12),
        (TypeError("not so"), "a defect of triglot, TypeError: not so (where it was: ", 12),
    ],
)
def test_what_nobody_has_foreseen_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    tmp_path: Path,
    error: Exception,
    line: str,
    code: int,
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copy_job(monkeypatch, on_check=fail)
    assert cli.main(["copy", "--to", "x"]) == code
    told = capsys.readouterr()
    assert told.err.startswith(f"triglot pipeline: {line}")
    assert told.err.count("\n") == 1
    assert ["Traceback" in log.read_text() for log in tmp_path.iterdir()] in ([], [True])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_its_code_and_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, number: signal.Signals, tmp_path: Path
) -> None:
    before = signal.getsignal(number)
    copy_job(monkeypatch, on_run=lambda: os.kill(os.getpid(), number))
    report = tmp_path / "run.svg"
    words = ["copy", "--to", "x", "--quiet", "--report", str(report)]
    assert cli.main(words) == 128 + number
    told = capsys.readouterr()
    assert told.err == (
        "triglot pipeline: copy stopped after 100 records; the same command goes on from there\n"
    )
    assert report.exists()
    assert signal.getsignal(number) is before


def test_ctrl_c_that_spark_s_own_handler_has_caught_is_told_too(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    copy_job(monkeypatch, on_run=interrupt)
    assert cli.main(["copy", "--to", "x", "--json"]) == 130
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[-1])["event"] == "stopped"
    assert "the same command goes on from there" in told.err


def test_a_signal_while_it_is_checked_ends_it_too(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    copy_job(monkeypatch, on_check=lambda: os.kill(os.getpid(), signal.SIGINT))
    assert cli.main(["copy", "--to", "x", "--json"]) == 130
    assert json.loads(capsys.readouterr().out) == {"event": "stopped", "exit": 130}


def test_the_report_of_a_run_that_failed_has_what_was_done(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    copy_job(monkeypatch, on_run=failing(KINDS["OffsetsGone"]("gone")))
    report = tmp_path / "run.html"
    assert cli.main(["copy", "--to", "x", "--report", str(report)]) == 6
    assert "<td>100</td>" in report.read_text()


def test_a_report_that_cannot_be_written_hides_neither_what_was_done_nor_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    report = tmp_path / "run.html"
    words = ["copy", "--to", "x", "--quiet", "--report", str(report)]
    copy_job(monkeypatch, on_run=report.mkdir)
    assert cli.main(words) == 11
    told = capsys.readouterr()
    assert told.out.startswith("copy: 300 records")
    assert told.err.startswith(f"triglot pipeline: cannot write the report {report}: ")

    report.rmdir()

    def fail() -> None:
        report.mkdir()
        raise KINDS["OffsetsGone"]("gone")

    copy_job(monkeypatch, on_run=fail)
    assert cli.main(words) == 6
    assert capsys.readouterr().err.endswith("\ntriglot pipeline: gone\n")
