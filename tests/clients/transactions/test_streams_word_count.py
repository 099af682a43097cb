"""Kafka Streams of three ages counts words exactly once while it and the broker are killed.

Every count of every word is written, so the result is exact only if for each word 1, 2, 3 ... come
once and in order. `kill -9` of the program twice, of the broker once.
"""

from __future__ import annotations

import collections
import random
import re
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.drivers.program_driver import CLIENTS
from tests.clients.transactions.exactly_once import (
    ANY,
    JAVA_OPTIONS,
    Committed,
    Feed,
    Program,
    make_topics,
    read_through,
    restart,
)
from tests.support import fetched
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server_process import ServerProcess

pytestmark = [
    pytest.mark.long,
    pytest.mark.clients,
    pytest.mark.java,
    pytest.mark.timeout(600),
]

#: By release: 2.8 as it was before KIP-447, with a producer for each task; 4 with epochs that
#: grow at every end (KIP-890).
GUARANTEES = {"2.8.2": "exactly_once", "3.9.2": "exactly_once_v2", "4.3.1": "exactly_once_v2"}
SOURCE, TARGET = "words", "counts"
PARTITIONS = 2
RECORDS = 4_000
PER_SECOND = 250
SEED = 17
DIFFERENT_WORDS = 50


def word_count(release: str, bootstrap: str, folder: Path) -> Program:
    """The program, with its store in a folder that outlives it. Raises `NotAvailable`."""
    java = fetched.runtime("java")
    sources = CLIENTS / "java" / "streams"
    jars = fetched.jars(sources / "pom.xml", properties={"kafka.version": release})
    classes = fetched.classes(sources, classpath=jars)
    command = [java, *JAVA_OPTIONS, "-cp", f"{classes}:{jars}/*", "triglot.WordCount"]
    command += [bootstrap, "word-count", SOURCE, TARGET, str(folder), GUARANTEES[release]]
    return Program(command, folder, re.compile("state RUNNING"))


@pytest.mark.parametrize("release", GUARANTEES)
def test_words_are_counted_once_though_program_and_broker_are_killed(
    release: str, killed_server: ServerProcess, tmp_path: Path
) -> None:
    make_topics(killed_server, PARTITIONS, SOURCE, TARGET)
    try:
        program = word_count(release, killed_server.bootstrap, tmp_path / "store")
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    chosen = random.Random(SEED)
    words = [f"word-{chosen.randrange(DIFFERENT_WORDS)}" for _ in range(RECORDS)]
    values = [(ANY, word) for word in words]
    feed = Feed(killed_server.bootstrap, SOURCE, values, per_second=PER_SECOND)
    counts = Committed(killed_server.bootstrap, TARGET, PARTITIONS, [program])
    program.start()
    feed.start()
    try:
        read_through(
            counts, RECORDS, program.restart, partial(restart, killed_server), program.restart
        )
        feed.finish()
    finally:
        program.kill()
        counts.close()
    seen: dict[str, list[int]] = {}
    for keys, values_of in zip(counts.keys, counts.values, strict=True):
        for word, count in zip(keys, values_of, strict=True):
            seen.setdefault(word, []).append(int(count))
    wanted = collections.Counter(words)
    assert seen == {word: list(range(1, count + 1)) for word, count in wanted.items()}
