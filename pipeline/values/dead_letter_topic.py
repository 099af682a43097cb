"""Dead letters in a topic: each record as it came, and behind its own headers four more.

    __triglot.errors.topic, .partition, .offset    where it was, numbers in decimal digits
    __triglot.errors.message                       why it does not fit

Named after those of Kafka Streams (KIP-1034). What tasks have staged of a micro-batch is noted in
the state, and then sent by the driver in transactions. Each has in it how many letters are sent, as
the offset of a consumer group for the partition that is written to. A run that finds a note which
is not done goes on behind the last commit.

    dead_letter_topic.json    in the state: the last micro-batch, its files and the partition that
                              each goes to, and whether it is done
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from client.cluster import Cluster, TopicPartition
from pipeline.archiving.archive_files import STAGING, describe
from pipeline.archiving.publication import expect_visible
from pipeline.archiving.reading import rows_in_order
from pipeline.columns.encode import DEFAULT_MAX_BYTES, encode_records
from pipeline.delivering.destination import make_topic, terms
from pipeline.delivering.record_sets import set_of_batch
from pipeline.delivering.transactional import Transactions, expect_format, transactional_delivery
from pipeline.errors import WrongUse
from pipeline.filesystem import refusing
from pipeline.object_store import store_of
from pipeline.values.decode_tasks import DEAD_LETTERS
from protocol.records.compression import LZ4

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pipeline.archiving.archive_files import ArchiveFile
    from pipeline.archiving.coverage import Covered
    from pipeline.delivering.record_sets import RecordSet
    from pipeline.filesystem import Location
    from pipeline.reading.options import SourceOptions
    from pipeline.state import State

NOTE = "dead_letter_topic"
NOTHING = {"batch": -1, "files": {}, "done": True}
FOLDER = "_dead_letters"
"""In the archive's: what is staged for the topic."""
PREFIX = "triglot-dead-letters-"
"""Of transactional ids, and of the groups that have the progress; the id of a state follows."""
HEADERS = "__triglot.errors."
ROWS_AT_ONCE = 4096


class DeadLetterTopic:
    """Sends staged dead letters to a topic of the cluster that is read, each once for readers of
    committed records. One at a time for a state, whose lock sees to it.

    `finish` comes first, once, before any task stages a file.
    """

    def __init__(
        self, name: str, folder: Location, state: State, source: SourceOptions, state_id: str
    ) -> None:
        """`folder` is that of the archive; `state_id` is the name of its state."""
        assert source.servers is not None
        self._name = name
        self.folder = folder.under(FOLDER)
        self._state = state
        self._cluster = Cluster(source.servers, patient=True, security=source.security)
        self._transactions = Transactions(f"{PREFIX}{state_id}", state_id)

    def finish(self) -> None:
        """Make the topic if it is not there; send what was noted and is not done, and clear away
        what other runs have staged. Raises Refused, Unreachable, CorruptData, ForeignState."""
        noted = self._state.take_over(NOTE, NOTHING)
        with self._cluster as cluster:
            if self._name not in cluster.topics():
                make_topic(cluster, self._name, 1)
        if noted is not None and not noted["done"]:
            self._send(noted["batch"], noted["files"])
        self._clear()

    def publish(
        self, batch_id: int, files: Mapping[str, str], covered: Sequence[Covered] = ()
    ) -> None:
        """Send the letters in files, by what they are staged as, each to the partition of the same
        number as the one that it comes from, modulo those that the topic has.

        Does nothing for a micro-batch that is sent already. Raises as `finish` does.
        """
        noted = self._state.read(NOTE)
        if noted is None or noted["batch"] < batch_id:
            expect_visible(self._staging(batch_id), files.values())
            with self._cluster as cluster:
                partitions = len(cluster.partitions([self._name])) if files else 1
            places = {
                staged: describe(self._staging(batch_id).under(staged)).partition % partitions
                for staged in files.values()
            }
            self._state.write(NOTE, {"batch": batch_id, "files": places, "done": not places})
            self._send(batch_id, places)
        self._clear()

    def _send(self, batch_id: int, places: Mapping[str, int]) -> None:
        if not places:
            return
        files: dict[int, list[ArchiveFile]] = defaultdict(list)
        for staged, partition in sorted(places.items()):
            files[partition].append(describe(self._staging(batch_id).under(staged)))
        transactions = replace(self._transactions, run=f"{self._transactions.run}-{batch_id}")
        with self._cluster as cluster:
            for partition, some in files.items():
                place = TopicPartition(self._name, partition)
                asked = terms(cluster, place)
                count = sum(file.rows for file in some)
                with transactional_delivery(cluster, transactions, place, asked) as delivery:
                    sent = delivery.start(0, count)
                    delivery.deliver(_sets(some, sent, min(DEFAULT_MAX_BYTES, asked.largest)))
                    delivery.finish(count)
        self._state.write(NOTE, {"batch": batch_id, "files": {}, "done": True})

    def _staging(self, batch_id: int) -> Location:
        return self.folder.under(STAGING, str(batch_id))

    def _clear(self) -> None:
        with refusing(f"write to {self.folder.path}"):
            store = store_of(self.folder)
            if store is not None:
                store.clear(self.folder)
            elif self.folder.exists():
                self.folder.filesystem.delete_dir(self.folder.path)


def check_topic(name: str, source: SourceOptions) -> None:
    """Whether dead letters of what `source` reads can go to a topic, as far as that can be known
    beforehand. Raises WrongUse, Refused, Unreachable."""
    if source.servers is None:
        raise WrongUse(
            "dead letters go to a topic of the brokers that are read from, and a data directory "
            "has none: give --dead-letters a folder"
        )
    if name in source.topics or (source.pattern and re.fullmatch(source.pattern, name)):
        raise WrongUse(
            f"topic '{name}' is archived itself, and its dead letters would come back for ever: "
            "give --dead-letters another topic, or --topics an expression without it"
        )
    with Cluster(source.servers, security=source.security) as cluster:
        if name in cluster.topics():
            place = TopicPartition(name, 0)
            expect_format(place, terms(cluster, place))


def _sets(files: Sequence[ArchiveFile], begin: int, largest: int) -> Iterator[RecordSet]:
    """All letters of these files from the number `begin` on, counted from 0; so are the sets."""
    end = 0
    for file in files:
        for rows in rows_in_order(file, DEAD_LETTERS.names, ROWS_AT_ONCE):
            left = rows.slice(max(0, begin - end))
            end += rows.num_rows
            if left.num_rows:
                for entry in encode_records(_with_errors(left), codec=LZ4, max_bytes=largest):
                    yield set_of_batch(entry, end - 1)


def _with_errors(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with what tells of their errors as the last of their headers."""
    headers = []
    for row in rows.select(["topic", "partition", "offset", "reason", "headers"]).to_pylist():
        told = {
            "topic": row["topic"],
            "partition": str(row["partition"]),
            "offset": str(row["offset"]),
            "message": row["reason"],
        }
        errors = [{"key": HEADERS + key, "value": text.encode()} for key, text in told.items()]
        headers.append([*(row["headers"] or ()), *errors])
    place = rows.schema.get_field_index("headers")
    field = rows.schema.field(place)
    return rows.set_column(place, field, pa.array(headers, field.type))
