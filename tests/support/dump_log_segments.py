"""Apache Kafka's `kafka.tools.DumpLogSegments` on the files of a data directory.

The tool goes through every batch and record of a log file and compares every index entry with the
batch it points at. A fault does not change its exit code: it is a line of its output.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support import fetched
from tests.support.kafka_process import POM

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCES = Path(__file__).resolve().parents[1] / "clients" / "java" / "dump"

#: What the tool can read, in the order in which its files are handed to it.
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
CHECKED_ALONE = (".index", ".timeindex")

LOG4J = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%p %m (%c)%n
"""

TIMEOUT_S = 300

#: Said of a log file between two records; the file's name follows, and a line for each hole.
HOLES = "Non-consecutive offsets in "

FAULT = re.compile(r"isvalid: false|invalid bytes at the end|Ignoring unknown file|\bcorrupt")


class Dumped(NamedTuple):
    """The findings of one look at a directory."""

    #: Lines of the tool that name a fault; what it prints to standard error is one.
    faults: list[str]
    #: Lines about offsets that do not follow each other; compaction may leave such.
    holes: list[str]
    #: How many files of each suffix were looked at.
    files: dict[str, int]
    #: How many batches or top-level messages, and how many entries of both kinds of index.
    batches: int
    index_entries: int


def dump(data: Path) -> Dumped:
    """Have the tool look at every file of every partition. Raises `NotAvailable`."""
    names = [
        str(path.relative_to(data))
        for suffix in SUFFIXES
        for path in sorted(data.glob(f"*-*/*{suffix}"))
    ]
    indexes = [name for name in names if name.endswith(CHECKED_ALONE)]
    runs = [["--deep-iteration", "--files", ",".join(names)]]
    ways = ("--verify-index-only", "--index-sanity-check")
    runs += [[way, "--files", ",".join(indexes)] for way in ways]
    ended = run_tool(runs, data)
    lines = ended.stdout.splitlines()
    faults = [line for line in lines if FAULT.search(line)]
    holes, others = _without_holes(ended.stderr.splitlines())
    faults += others
    if ended.returncode:
        faults.append(f"the tool ended with {ended.returncode}")
    dumped = sum(line.startswith("Dumping ") for line in lines)
    wanted = len(names) + 2 * len(indexes)
    if dumped != wanted:
        faults.append(f"the tool looked at {dumped} files and not at {wanted}")
    return Dumped(
        faults,
        holes,
        {suffix: sum(name.endswith(suffix) for name in names) for suffix in SUFFIXES},
        sum("isvalid: true" in line for line in lines),
        sum(
            (data / name).stat().st_size // (8 if name.endswith(".index") else 12)
            for name in indexes
        ),
    )


def run_tool(runs: Iterable[list[str]], data: Path) -> subprocess.CompletedProcess[str]:
    """Run the tool in the directory `data`, several times with these words in one process."""
    jars = fetched.jars(POM)
    classes = fetched.classes(SOURCES, classpath=jars)
    log4j = data.parent / "dump-log4j.properties"
    log4j.write_text(LOG4J)
    command = [fetched.runtime("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    # It prints in the encoding of the environment; which property says so depends on the release.
    command += [f"-D{name}=UTF-8" for name in ("file.encoding", "stdout.encoding")]
    command += [f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{classes}:{jars}/*"]
    command += ["triglot.DumpFiles", *(word for run in runs for word in (*run, ","))]
    return subprocess.run(
        command,
        cwd=data,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=TIMEOUT_S,
    )


def _without_holes(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """The lines about missing offsets, and the others."""
    holes: list[str] = []
    others: list[str] = []
    inside = False
    for line in lines:
        inside = line.startswith(HOLES) or (inside and line.startswith("  "))
        (holes if inside else others).append(line)
    return holes, others
