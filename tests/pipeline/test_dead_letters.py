"""Dead letters beside a table: a run that is cut off between the two neither loses nor doubles."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from pipeline.archiving.publication import NOTE, Publication
from tests.pipeline import values_topics as topics
from tests.pipeline.transactional_history import consumed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess
    from tests.support.schema_registry import SchemaRegistry

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("with_pandas"),
]
names = (f"with-dead-letters-{number}" for number in itertools.count())
LATER = 999
"""A schema id that is registered when the run has been cut off."""


class Crash(Exception):
    """The machine goes down."""


@pytest.mark.parametrize("place", ["folder", "topic"])
def test_a_run_that_ends_between_dead_letters_and_rows_leaves_each_record_once(
    place: str,
    broker: BrokerProcess,
    registry: SchemaRegistry,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = next(names)
    good = [
        topics.serialize(registry, topic, topics.ORDER_1, topics.order(number))
        for number in range(6)
    ]
    bad = [b"", b"no header", good[0] + b"\0", b"\0" + struct.pack(">i", LATER) + good[0][5:]]
    mixed = [one for pair in itertools.zip_longest(good, bad) for one in pair if one is not None]
    topics.produce(broker, topic, *mixed)
    letters = f"{tmp_path}/dead" if place == "folder" else f"topic:{topic}.dead"
    archive = topics.archive_of(
        broker, registry, topic, tmp_path / "lake", values={"dead_letters": letters}
    )
    publish = Publication.publish

    def crashing(self: Publication, *given: Any) -> None:
        if self._note == NOTE:
            raise Crash
        publish(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Publication, "publish", crashing)
        with pytest.raises(StreamingQueryException, match="Crash"):
            archive.run(spark)
    assert not list((tmp_path / "lake").glob("*.parquet"))
    # By now it could be decoded: a letter that was sent is no row besides.
    registry.schemas[LATER] = registry.schemas[1]
    topics.produce(broker, topic, good[1], b"more")
    archive.run(spark)
    rows = topics.rows(tmp_path / "lake")
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 4, 5, 1]
    if place == "folder":
        found = [row["value"] for row in topics.rows(tmp_path / "dead")]
    else:
        sent = consumed(broker.bootstrap, f"{topic}.dead", "read_committed")
        found = [message.value() for message in sent]
    assert found == [*bad, b"more"]
