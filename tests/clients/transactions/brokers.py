"""The brokers that are told the scripts: releases of Apache Kafka, and ours."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from tests.clients.transactions.telling import SETTINGS
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4, Release

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.clients.transactions.scripts import Script


UNSTABLE = {"unstable.api.versions.enable": "true"}
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}


class Reference(NamedTuple):
    """A release of Apache Kafka with a level of `transaction.version`."""

    release: Release
    #: 3.9 knows no other.
    level: int
    #: Whether the level must be set, for the release has another by itself.
    sets_level: bool = False

    settings: Mapping[str, str] = {}
    #: Whether it offers requests that are not stable yet; it is told about these alone.
    unstable: bool = False

    @property
    def level_to_set(self) -> int | None:
        return self.level if self.sets_level else None


REFERENCES = {
    "3.9.1": Reference(KAFKA_3_9, 0),
    "4.3.1-tv1": Reference(KAFKA_4, 1, sets_level=True),
    "4.3.1-tv2": Reference(KAFKA_4, 2, sets_level=True),
    "4.3.1-unstable": Reference(KAFKA_4, 2, True, UNSTABLE, unstable=True),
    "4.3.1-two-phase": Reference(KAFKA_4, 2, True, {**UNSTABLE, **TWO_PHASE}, unstable=True),
}
"""By the names that `answers.txt` has for them."""


ON_KAFKA = "TEST_TRANSACTIONS_ON_KAFKA" in os.environ
"""Whether the clients are to show what they do with Apache Kafka, too (make test-transactions)."""

STABLE = [name for name, reference in REFERENCES.items() if not reference.unstable]


def scripts_for(name: str, scripts: Iterable[Script]) -> list[Script]:
    """Those that the reference is told."""
    unstable = REFERENCES[name].unstable
    return [script for script in scripts if script.needs_unstable == unstable]


def apache_kafka(name: str, folder: Path) -> KafkaProcess:
    """The reference, to be started. Raises `NotAvailable`."""
    reference = REFERENCES[name]
    settings = {**SETTINGS, **reference.settings}
    return KafkaProcess(folder, settings=settings, release=reference.release)


def triglot(name: str, folder: Path) -> BrokerProcess:
    """Ours with the settings of a reference, to be started."""
    return BrokerProcess(folder, settings={**SETTINGS, **REFERENCES[name].settings})
