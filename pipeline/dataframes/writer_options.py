"""The options of `format("triglot")` for writing; names count in any case.

    kafka.bootstrap.servers   required
    commandConfig             a file with Kafka's client properties, for TLS and SASL; it has to be
                              there on every machine that runs tasks
    topic                     for all rows; a column `topic` does not count then
    kafka.compression.type    none (default), gzip, snappy, lz4, zstd; of records only
    kafka.batch.size          bytes of records in a batch, before compression
    magic                     the format that is written, 0, 1 or 2; by default the newest that the
                              broker takes. Stored batches of older formats become batches of 2
    keepProducers             true (default): stored batches keep producers' ids and sequences
    transactionalId           write each row once, in transactions whose ids begin with this
    transactionalEpoch        the number of a write that is no stream: what is written again with
                              the same number is not written a second time
    kafka.transaction.timeout.ms   how long a write, or a micro-batch, may take

Those that have `kafka.` in front are the producer's. Others of the producer that would change
nothing here are taken, so that a query for the connector runs unchanged; so is `includeHeaders`,
for a column `headers` is written in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pipeline.delivering.transactional import check_prefix
from pipeline.errors import WrongUse
from pipeline.reading.options import OF_EVERY_CLIENT
from pipeline.reading.security_options import asks_for_plaintext, security_of
from protocol.records.compression import NAMES, ZSTD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client.security import ClientSecurity

BATCH_BYTES = 512 << 10
"""Half of what a broker takes by default: long batches compress well and cost little each."""
BATCH_BYTES_MAX = 64 << 20
EPOCH_MAX = (1 << 53) - 1
INT32_MAX = (1 << 31) - 1
TRANSACTION_TIMEOUT_MS = 600_000
"""A micro-batch has to be over within it, and readers of committed records wait no longer for what
was killed for good. A broker grants 900 s at most by default."""

OPTIONS = (
    "kafka.bootstrap.servers",
    "commandConfig",
    "topic",
    "kafka.compression.type",
    "kafka.batch.size",
    "magic",
    "keepProducers",
    "transactionalId",
    "transactionalEpoch",
    "kafka.transaction.timeout.ms",
)
WITHOUT_MEANING = frozenset({
    "includeheaders",
    "kafka.acks",
    "kafka.buffer.memory",
    "kafka.delivery.timeout.ms",
    "kafka.enable.idempotence",
    "kafka.linger.ms",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.max.request.size",
    "kafka.metadata.max.idle.ms",
    "kafka.retries",
    *OF_EVERY_CLIENT,
})  # fmt: skip
"""Every write is acknowledged by all replicas and repeated where that is safe."""
OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""What Spark's own options are called that it passes on to a sink."""


@dataclass(frozen=True)
class WriterOptions:
    """The options of a writer. Picklable."""

    servers: str
    security: ClientSecurity | None = None
    topic: str | None = None
    codec: int = 0
    batch_bytes: int = BATCH_BYTES
    magic: int | None = None
    keep_producers: bool = True
    transactional_id: str | None = None
    transactional_epoch: int | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriterOptions:
        """Names in any case. Raises WrongUse for one that is not known, and for a bad value."""
        known = {name.lower(): name for name in OPTIONS}
        given: dict[str, str] = {}
        for name, value in ((name.lower(), value.strip()) for name, value in options.items()):
            if name in OF_SPARK | WITHOUT_MEANING or asks_for_plaintext(name, value):
                continue
            if name not in known:
                raise WrongUse(f"unknown option '{name}'{_nearest(name, known)}")
            if not value:
                raise WrongUse(f"option '{known[name]}' is empty")
            given[known[name]] = value
        if "kafka.bootstrap.servers" not in given:
            raise WrongUse("option 'kafka.bootstrap.servers' is missing: name a broker, host:port")
        codec = _one_of(given, "kafka.compression.type", NAMES, "none")
        magic = _one_of(given, "magic", ("0", "1", "2"), "2") if "magic" in given else None
        if codec == ZSTD and magic in (0, 1):
            raise WrongUse(
                f"option 'magic' is '{magic}', and zstd needs format 2: use another codec"
            )
        _check_transactions(given, magic)
        return cls(
            servers=given["kafka.bootstrap.servers"],
            security=security_of(given.get("commandConfig")),
            topic=given.get("topic"),
            codec=codec,
            batch_bytes=_number(given, "kafka.batch.size", BATCH_BYTES, 1, BATCH_BYTES_MAX),
            magic=magic,
            keep_producers=bool(_one_of(given, "keepProducers", ("false", "true"), "true")),
            transactional_id=given.get("transactionalId"),
            transactional_epoch=(
                _number(given, "transactionalEpoch", 0, 0, EPOCH_MAX)
                if "transactionalEpoch" in given
                else None
            ),
            transaction_timeout_ms=_number(
                given, "kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS, 1000, INT32_MAX
            ),
        )


def _nearest(name: str, known: Mapping[str, str]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean '{known[near[0]]}'?"
    return f": a writer has {', '.join(known.values())}"


def _one_of(given: Mapping[str, str], name: str, values: tuple[str, ...], default: str) -> int:
    value = given.get(name, default).lower()
    if value not in values:
        raise WrongUse(f"option '{name}' is '{value}': want one of {', '.join(values)}")
    return values.index(value)


def _check_transactions(given: Mapping[str, str], magic: int | None) -> None:
    prefix = given.get("transactionalId")
    check_prefix(prefix, "option 'transactionalId'")
    if prefix is not None and magic in (0, 1):
        raise WrongUse(f"option 'magic' is '{magic}', and transactions need format 2")
    if prefix is None and "transactionalEpoch" in given:
        raise WrongUse("option 'transactionalEpoch' is of transactions: give a 'transactionalId'")


def _number(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    value = given.get(name, str(default))
    # No number that is longer than the largest is ever made of what was given.
    is_short = value.isascii() and value.isdecimal() and len(value) <= len(str(most))
    if not is_short or not least <= int(value) <= most:
        raise WrongUse(f"option '{name}' is '{value[:40]}': want {least} to {most}")
    return int(value)
