"""The versions of each API in every release of Apache Kafka, read from the jars of its clients.

    python -m tests.support.release_ranges      # writes protocol/release_ranges.py anew

A release is known by its first two numbers, by three below 1.0 where the third made a difference;
the jar is that of its last patch release.
"""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import fetched

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).parent / "releases"
POM = FOLDER / "pom.xml"
PROGRAM = FOLDER / "Ranges.java"
WRITTEN = Path(__file__).parents[2] / "protocol" / "release_ranges.py"

VERSION = re.compile(r"<artifactId>kafka-clients</artifactId><version>(.*?)</version>")
ONE_OF_ITS_KIND = ("0.9", "0.11")
"""Releases below 1.0 with a single minor version."""
KRAFT_SINCE = (3, 3)
"""From here on a new cluster has no ZooKeeper (KIP-833), and other APIs."""
READ_WITHIN_S = 240.0

Ranges = dict[int, tuple[int, int]]

HEAD = '''\
"""The versions of each API that brokers of Apache Kafka advertise, release by release.

Written by `python -m tests.support.release_ranges` from the releases themselves; not to be edited.
"""

from __future__ import annotations

# Release: the patch release that was read.
READ_FROM = {
'''

MIDDLE = """\
}

# By key: the name, and the range of versions from a release on; "none" where a release has none.
RANGES: dict[int, tuple[str, str]] = {
"""


def name_of(version: str) -> str:
    """The release of a version with all its numbers: 0.10.2 of 0.10.2.2, 4.1 of 4.1.2."""
    parts = version.split(".")
    name = ".".join(parts[:3] if parts[0] == "0" else parts[:2])
    return next((one for one in ONE_OF_ITS_KIND if name == f"{one}.0"), name)


def _ranges(lines: Iterable[str]) -> dict[str, Ranges]:
    """Release -> key -> lowest and highest version."""
    ranges: dict[str, Ranges] = {name_of(version): {} for version in versions()}
    for line in lines:
        release, key, _, lowest, highest = line.split()
        ranges[release][int(key)] = int(lowest), int(highest)
    return ranges


def versions() -> list[str]:
    """The versions whose jars are read, the oldest first."""
    return VERSION.findall(POM.read_text(encoding="utf-8"))


def _printed(versions: Iterable[str]) -> list[str]:
    jars = fetched.artifacts(POM)
    arguments = []
    for version in versions:
        number = tuple(map(int, version.split(".")[:2]))
        listener = "BROKER" if number >= KRAFT_SINCE else "ZK_BROKER"
        arguments.append(f"{name_of(version)}={listener}={jars}/kafka-clients-{version}.jar")
    logging = f"{jars}/slf4j-api-1.7.36.jar"
    command = [fetched.runtime("java"), "-cp", logging, str(PROGRAM), *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=READ_WITHIN_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def written() -> str:
    """The module with what was read. Raises `NotAvailable`."""
    lines = _printed(versions())
    # The newest name of an API, without spaces, is the one that it has today.
    names = {int(key): name for _, key, name, *_ in (line.split() for line in lines)}
    ranges = _ranges(lines)
    module = HEAD
    for version in versions():
        module += f'    "{name_of(version)}": "{version}",\n'
    module += MIDDLE
    for key, name in sorted(names.items()):
        module += f'    {key}: (\n        "{name}",\n{_quoted(_changes(ranges, key))}    ),\n'
    return module + "}\n"


def _changes(ranges: dict[str, Ranges], key: int) -> str:
    """The range of an API from each release on that has another than the one before."""
    before, said = "none", []
    for release, of_release in ranges.items():
        found = of_release.get(key)
        now = "none" if found is None else f"{found[0]}-{found[1]}"
        if now != before:
            said.append(f"{release} {now}")
        before = now
    return ", ".join(said)


def _quoted(text: str) -> str:
    """A literal of so many lines as it needs."""
    # The formatter joins what fits into one line.
    lines = [text] if len(text) <= 89 else textwrap.wrap(text, 80, break_on_hyphens=False)
    whole = [f'"{line} "\n' for line in lines[:-1]] + [f'"{lines[-1]}",\n']
    return "".join(f"        {line}" for line in whole)


if __name__ == "__main__":
    WRITTEN.write_text(written(), encoding="utf-8")
    print(f"{WRITTEN} is written")
