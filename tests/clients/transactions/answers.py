"""The table of what Apache Kafka answered to the scripts, `answers.txt`.

Under each step stand its answers. One that every telling of the script got stands alone; others
have before them which got it: versions alone where all brokers gave it in these, else by broker,
with the versions where those are not all of the script's:

    add/V id=T by=a t:0
        [0-1] t:0 INVALID_PRODUCER_EPOCH
        [3.9.1 2-5; 4.3.1-tv2 2-5] t:0 PRODUCER_FENCED

A telling in which a broker did not offer some version is left out: nobody need answer like it.
`told:` says which there are, where they are not all.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.clients.transactions.telling import NOT_OFFERED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.transactions.scripts import Script
    from tests.clients.transactions.telling import Told

FILE = Path(__file__).parent / "answers.txt"
BROKERS, TOLD = "brokers: ", "told: "
INDENT = "    "

_GIVERS = re.compile(r"\[(?P<runs>[0-9.a-z; ,-]+)\] (?P<answer>.*)")
_RANGES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")

#: By broker.
Table = dict[str, "Told"]
Runs = dict[str, list[int | None]]


def write(table: Table, scripts: Sequence[Script]) -> str:
    """The text of the table; what is not of these scripts is left out."""
    brokers = sorted(table)
    lines = [BROKERS + ", ".join(brokers)]
    for script in scripts:
        first, last = script.versions[0], script.versions[-1]
        versions = "" if first is None else f" | versions {first}-{last}"
        lines += ["", f"== {script.title}{versions}"]
        told = {
            broker: found
            for broker in brokers
            if (found := [one for one in script.versions if (script.title, one) in table[broker]])
        }
        if told != dict.fromkeys(brokers, script.versions):
            lines.append(TOLD + _runs(told, script))
        for number, line in enumerate(script.lines):
            given: dict[str, Runs] = {}
            for broker, found in told.items():
                for version in found:
                    answer = table[broker][script.title, version][number]
                    given.setdefault(answer, {}).setdefault(broker, []).append(version)
            lines.append(line)
            lines += [
                INDENT + (answer if runs == told else f"[{_shortest(runs, told, script)}] {answer}")
                for answer, runs in given.items()
            ]
    return "\n".join(lines) + "\n"


def _shortest(runs: Runs, told: Runs, script: Script) -> str:
    versions = [
        version for version in script.versions if any(version in of for of in runs.values())
    ]
    if versions != [None] and runs == _limited(told, versions):
        return _ranges(versions)
    return _runs(runs, script)


def _limited(told: Runs, versions: Sequence[int | None]) -> Runs:
    found = {broker: [one for one in of if one in versions] for broker, of in told.items()}
    return {broker: of for broker, of in found.items() if of}


def _runs(runs: Runs, script: Script) -> str:
    return "; ".join(
        broker if versions == script.versions else f"{broker} {_ranges(versions)}"
        for broker, versions in runs.items()
    )


def _ranges(versions: list[int | None]) -> str:
    ranges: list[list[int]] = []
    for version in versions:
        assert version is not None
        if ranges and ranges[-1][-1] == version - 1:
            ranges[-1][1:] = [version]
        else:
            ranges.append([version])
    return ",".join("-".join(map(str, one)) for one in ranges)


def read(text: str, scripts: Sequence[Script]) -> Table:
    """The table. A script that has been changed since has no answers."""
    lines = text.splitlines()
    brokers = lines[0].removeprefix(BROKERS).split(", ") if lines else []
    table: Table = {broker: {} for broker in brokers}
    blocks = {
        block.splitlines()[0].partition(" | ")[0]: block.splitlines()[1:]
        for block in re.split(r"^== ", "\n".join(lines), flags=re.MULTILINE)[1:]
    }
    for script in scripts:
        block = [line for line in blocks.get(script.title, []) if line]
        told = "; ".join(brokers)
        if block and block[0].startswith(TOLD):
            told = block.pop(0).removeprefix(TOLD)
        if [line for line in block if not line.startswith(INDENT)] == script.lines:
            _read_script(block, script, told, table)
    return table


def _read_script(block: list[str], script: Script, told_line: str, table: Table) -> None:
    told = _read_runs(told_line, script)
    for line in block:
        if not line.startswith(INDENT):
            continue
        given = _GIVERS.match(line.removeprefix(INDENT))
        answer = given["answer"] if given else line.removeprefix(INDENT)
        if given is None:
            runs = told
        elif _RANGES.fullmatch(given["runs"]):
            runs = _limited(told, _versions(given["runs"]))
        else:
            runs = _read_runs(given["runs"], script)
        for broker, versions in runs.items():
            for version in versions:
                table[broker].setdefault((script.title, version), []).append(answer)


def _read_runs(line: str, script: Script) -> Runs:
    found: Runs = {}
    for run in line.split("; "):
        broker, _, ranges = run.partition(" ")
        found[broker] = [*_versions(ranges)] if ranges else script.versions
    return found


def _versions(ranges: str) -> list[int]:
    found: list[int] = []
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def comparable(told: Told) -> Told:
    """Those tellings in which the broker could be asked everything."""
    return {one: answers for one, answers in told.items() if NOT_OFFERED not in answers}
