"""The golden vectors beside this file, and the form in which they show records."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.records.layout import CHECKED_POSITION, CRC_POSITION, UINT32

if TYPE_CHECKING:
    from protocol.records.record import Record

FOLDER = Path(__file__).parent / "vectors"
SHOWN_WHOLE_BYTES = 600


def vectors(name: str) -> list[dict[str, Any]]:
    content = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = content["vectors"]
    return found


def sets(*magics: int) -> list[dict[str, Any]]:
    """Sets of real clients and of Kafka itself, in these formats."""
    files = ("sets_java.json", "sets_kafka_python.json", "sets_aiokafka_librdkafka.json")
    return [vector for name in files for vector in vectors(name) if vector["magic"] in magics]


def raw(text: str) -> bytearray:
    return bytearray(base64.b64decode(text))


def shown(record: Record) -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": blob(record.key),
        "value": blob(record.value),
        "headers": [[name, blob(value)] for name, value in record.headers],
    }


def blob(data: bytes | None) -> object:
    if data is None:
        return None
    if len(data) <= SHOWN_WHOLE_BYTES:
        return base64.b64encode(data).decode()
    return {"len": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def reseal(batch: bytearray) -> bytearray:
    """Make the checksum fit again, by another implementation than the one under test."""
    UINT32.pack_into(batch, CRC_POSITION, reference_crc32c(bytes(batch[CHECKED_POSITION:])))
    return batch


def reference_crc32c(data: bytes) -> int:
    from crcmod.predefined import mkPredefinedCrcFun

    value: int = mkPredefinedCrcFun("crc-32c")(data)
    return value
