"""The work of `triglot produce`, from parsed arguments to printed lines."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from client.cluster import ProduceUnknown
from client.errors import Failure, NoSuchTopic
from protocol.records.compression import NAMES
from tools.errors import NotDone
from tools.printing import Records, counted, print_json, print_lines
from tools.produce.lines import STANDARD_INPUT
from tools.produce.rows import READERS, Given
from tools.produce.sending import Sender

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from client.cluster import Cluster
    from tools.produce.rows import Row


def run(client: Cluster, arguments: Arguments) -> None:
    """Write what is read, and say where it went."""
    topic = arguments.topic
    try:
        partitions = [place.partition for place in client.partitions([topic])]
    except NoSuchTopic as error:
        raise NotDone(f"{error} (triglot topics create {quote(topic)} makes it)") from None
    given = Given(
        key=arguments.key,
        key_separator=arguments.key_separator,
        headers=tuple((name, _bytes(value)) for name, value in arguments.header),
        partition=arguments.partition,
        timestamp_ms=arguments.timestamp,
        empty_is_null=arguments.empty_is_null,
    )
    line = Records(arguments.progress)
    codec = NAMES.index(arguments.codec)
    sender = Sender(client, topic, partitions, codec=codec, told=line.more)
    try:
        _write(sender, arguments, given)
    except (Failure, NotDone, ProduceUnknown, KeyboardInterrupt) as error:
        line.clear()
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        raise NotDone(f"{why}; {counted(sender.records, 'record')} written before") from None
    line.clear()
    if arguments.json:
        print_json(_report(topic, sender))
        return
    print_lines(
        f"{topic}-{partition}: {counted(one.records, 'record')}, offsets {one.first_offset} to "
        f"{one.last_offset}"
        for partition, one in sorted(sender.written.items())
    )
    print_lines([f"{counted(sender.records, 'record')} written"])


def _write(sender: Sender, arguments: Arguments, given: Given) -> None:
    rows = READERS[arguments.input](arguments.file or [STANDARD_INPUT], given)
    some: list[Row] | None = []
    while some is not None:
        try:
            some = next(rows, None)
            if some:
                sender.add(some)
        except NotDone:
            sender.flush()  # what was read before is written
            raise
        if not some:
            sender.flush()


def _report(topic: str, sender: Sender) -> dict[str, object]:
    partitions = [
        {"partition": partition, **vars(one)} for partition, one in sorted(sender.written.items())
    ]
    return {"topic": topic, "records": sender.records, "partitions": partitions}


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
