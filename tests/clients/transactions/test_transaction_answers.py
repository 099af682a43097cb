"""Requests about transactions, state by state and error by error, are answered as by Apache Kafka.

The scripts lie in `scripts`, and what Kafka 3.9.1 and 4.3.1 answered in `answers.txt`, which
`python -m tests.clients.transactions.record_answers` writes. Ours is told the scripts at the same
level of `transaction.version` and must answer the same; Kafka is asked again in the long part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.transactions import answers
from tests.clients.transactions.brokers import (
    ON_KAFKA,
    REFERENCES,
    apache_kafka,
    scripts_for,
    triglot,
)
from tests.clients.transactions.scripts import Script, read_scripts
from tests.clients.transactions.telling import Told, prepare, tell, tell_all
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.server_process import ServerProcess

SCRIPTS = {script.title: script for script in read_scripts()}
RECORDED = answers.read(answers.FILE.read_text(encoding="utf-8"), [*SCRIPTS.values()])

NO_MARKER = "no marker goes where the transaction has no batch"
STRICTER = "3.9 takes a newer epoch than it has given, once the transaction is under way"
NO_START = "3.9 goes on telling when the last transaction began, 4.3 does not"
KEPT = "4.3.1 refuses to keep a transaction, whatever is configured"
GENERATION = "of a group that is not there, the generation is refused before the member"
DIFFERENCES = {
    ("", "a transaction with partitions and no records"): NO_MARKER,
    ("", "markers are written by hand"): NO_MARKER,
    ("", "offsets by a member of a group that is not there"): GENERATION,
    ("", "transactions are described in each state"): "an id that is named twice is told once",
    ("", "partitions of topics that are Kafka's own"): "in versions 4 and 5, which brokers send",
    ("3.9.1", "offsets by a producer that is not that of the transactional id"): STRICTER,
    ("3.9.1", "offsets by an instance that was fenced"): STRICTER,
    ("3.9.1", "records of another epoch"): STRICTER,
    ("3.9.1", "a new instance ends the open transaction of the one before"): NO_START,
    ("3.9.1", "a producer that says its own epoch in its open transaction starts over"): NO_START,
    ("3.9.1", "a stranger that says another epoch leaves the open transaction alone"): NO_START,
    ("3.9.1", "a new instance after a commit"): NO_START,
    ("3.9.1", "a new instance after an abort"): NO_START,
    ("3.9.1", "transactions are described in each state"): NO_START,
    ("4.3.1-two-phase", "two-phase commit: an open transaction is kept"): KEPT,
    ("", "two-phase commit: a prepared transaction without it, and none at all"): KEPT,
    ("4.3.1-two-phase", "two-phase commit: with a producer id and epoch given"): KEPT,
    ("", "two-phase commit where it is off"): KEPT,
}
"""What is answered otherwise and why, by reference ("" for every one) and script."""

TRIES_ALONE = 3

#: The first test of a module waits for all scripts to be told.
pytestmark = pytest.mark.timeout(600)


def _told(server: ServerProcess, reference: str, level: int | None) -> Told | str:
    """All answers, or why none could be had."""
    with server:
        try:
            prepare(server, level)
        except AssertionError as reason:
            return str(reason)
        told = answers.comparable(tell_all(server, scripts_for(reference, SCRIPTS.values())))
        for title, version in told:
            # A busy machine is late: once more, alone.
            for _ in range(TRIES_ALONE):
                if told[title, version] == RECORDED[reference].get((title, version)):
                    break
                again = {(title, version): tell(server, SCRIPTS[title], version)}
                told |= answers.comparable(again)
        return told


@pytest.fixture(scope="module")
def told_by_us(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Told | str]:
    found: dict[str, Told | str] = {}

    def told(reference: str) -> Told | str:
        if reference not in found:
            server = triglot(reference, tmp_path_factory.mktemp("ours") / "data")
            found[reference] = _told(server, reference, REFERENCES[reference].level)
        return found[reference]

    return told


def _differences(script: Script, reference: str, told: Told) -> list[str]:
    """A line for each answer that is not as recorded."""
    found = []
    for version in script.versions:
        recorded = RECORDED[reference].get((script.title, version))
        if recorded is None:
            continue
        heard = told.get((script.title, version))
        if heard is None:
            found.append(f"version {version}: not offered")
            continue
        for line, wanted, answer in zip(script.lines, recorded, heard, strict=True):
            if answer != wanted:
                found.append(f"version {version}, {line}: {answer} instead of {wanted}")
    return found


def test_every_script_was_told_to_a_reference_and_has_an_answer_to_every_step() -> None:
    assert set(RECORDED) == set(REFERENCES)
    told = {title for answered in RECORDED.values() for title, _ in answered}
    assert told == set(SCRIPTS)
    for answered in RECORDED.values():
        for (title, _), found in answered.items():
            assert len(found) == len(SCRIPTS[title].lines)


@pytest.mark.parametrize(
    ("reference", "title"),
    [
        (name, script.title)
        for name in REFERENCES
        for script in scripts_for(name, SCRIPTS.values())
        if any((script.title, version) in RECORDED.get(name, {}) for version in script.versions)
    ],
)
def test_triglot_answers_as_apache_kafka_did_but_for_what_is_listed(
    reference: str, title: str, told_by_us: Callable[[str], Told | str]
) -> None:
    told = told_by_us(reference)
    if isinstance(told, str):
        pytest.fail(told)
    found = _differences(SCRIPTS[title], reference, told)
    reason = DIFFERENCES.get((reference, title)) or DIFFERENCES.get(("", title))
    if reason is None:
        assert found == []
    else:
        assert found, f"is answered alike by now: {reason}"


@pytest.mark.long
@pytest.mark.java
@pytest.mark.parametrize("reference", REFERENCES if ON_KAFKA else ["3.9.1", "4.3.1-tv2"])
def test_apache_kafka_still_answers_as_recorded(reference: str, tmp_path: Path) -> None:
    try:
        kafka = apache_kafka(reference, tmp_path / "kafka")
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    told = _told(kafka, reference, REFERENCES[reference].level_to_set)
    assert told == RECORDED[reference]
