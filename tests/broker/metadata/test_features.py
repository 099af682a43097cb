"""The levels of metadata.version: which steps down could lose something."""

from __future__ import annotations

from broker.metadata.features import LOWEST_SETTABLE, records_differ
from protocol.logdata.metadata import MAX_METADATA_VERSION, RELEASES

#: Where Kafka 4.4.0's table of levels says that metadata change (and 3.9's, below 7).
KAFKA_SAYS_CHANGED = {5, 6, 7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33}


def test_levels_that_kafka_takes_for_another_form_of_the_metadata_are_so_here() -> None:
    steps = range(LOWEST_SETTABLE + 1, MAX_METADATA_VERSION + 1)

    assert {level for level in steps if records_differ(level - 1, level)} == KAFKA_SAYS_CHANGED
    assert RELEASES[MAX_METADATA_VERSION] == "4.4-IV2", "look at a newer table"


def test_a_step_over_several_levels_differs_if_one_of_them_does() -> None:
    assert not records_differ(17, 21)
    assert records_differ(16, 21)
    assert records_differ(22, 33)
    assert not records_differ(21, 21)
