"""Records as values that people and JSON can read."""

from __future__ import annotations

import json

from protocol.logdata.metadata import ClientQuotaRecord, ConfigRecord, decode_record
from protocol.logdata.plain import plain


def test_fields_have_their_names_and_ids_are_those_that_kafka_prints() -> None:
    # Of Apache Kafka 3.9 (storage.md 16.4).
    raw = "010200037431481b05ce24a94319bb6b7ecd8b0bd25100"
    assert plain(decode_record(bytes.fromhex(raw))) == {
        "name": "t1",
        "topic_id": "SBsFziSpQxm7a37NiwvSUQ",
    }


def test_bytes_are_digits_and_structs_are_objects() -> None:
    raw = (
        "010b0006616c69636501043132332111c8d58f73b2dc7e4876538a2c390e4181ef3ed048a8bc16ceed16d57c6a"
        "386a211f655c66de3267e37cc29618d7887bcc646b665b4f29b20cd6f31867100053e40000200000"
    )
    assert plain(decode_record(bytes.fromhex(raw)))["salt"] == "0x313233"
    quota = ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)],
        key="producer_byte_rate",
        value=0.5,
        remove=False,
    )
    assert plain(quota) == {
        "entity": [{"entity_type": "user", "entity_name": None}],
        "key": "producer_byte_rate",
        "value": 0.5,
        "remove": False,
    }


def test_what_is_not_utf_8_can_be_shown_all_the_same() -> None:
    odd = b"a\xff".decode("utf-8", "surrogateescape")
    record = ConfigRecord(resource_type=2, resource_name=odd, name="k", value="two\nlines")
    shown = plain(record)
    assert shown["resource_name"] == "a\\udcff"
    assert json.loads(json.dumps(shown)) == shown
