"""Sets that we write in formats 0 and 1, read by Apache's own classes of that age.

0.8.2 is the one that checks the broken header checksum of lz4, and knows nothing newer.
"""

from __future__ import annotations

import base64
import os
import random
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from protocol.records.compression import compress
from protocol.records.legacy import build_messages, wrap_messages
from tests.support import fetched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.records.builder import RecordFields

FOLDER = Path(__file__).with_name("java")
ROWS: list[RecordFields] = [
    (1_500_000_000_000 + i, b"key %d" % i, b"value " * 40, ()) for i in range(9)
]
ROWS += [(1_500_000_000_050, None, None, ()), (1_500_000_000_060, b"", b"", ())]

pytestmark = pytest.mark.java


def read_by(version: str, inputs: Sequence[bytes], *options: str) -> list[str]:
    """What the classes of this release say to each input."""
    try:
        jars = fetched.jars(FOLDER / "pom.xml", properties={"kafka.version": version})
        classes = fetched.classes(FOLDER / "src", classpath=jars)
        java = fetched.runtime("java")
    except fetched.NotAvailable as reason:
        if "java" in os.environ.get("TEST_REQUIRE_CLIENTS", "").split(","):
            pytest.fail(str(reason))
        pytest.skip(str(reason))
    lines = b"".join(base64.b64encode(data) + b"\n" for data in inputs)
    ended = subprocess.run(
        [java, "-cp", f"{classes}:{jars}/*", "ReadSets", *options],
        input=lines,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return ended.stdout.decode().splitlines()


def shown(base_offset: int) -> str:
    def text(field: bytes | None) -> str:
        return "-" if field is None else f"{len(field)}/{zlib.crc32(field):x}"

    return "".join(
        f"{base_offset + index}:{text(key)}:{text(value)} "
        for index, (_, key, value, _) in enumerate(ROWS)
    )


@pytest.mark.parametrize(
    ("version", "magic"),
    [
        ("0.8.2.2", 0),
        pytest.param("0.9.0.1", 0, marks=pytest.mark.long),
        pytest.param("0.10.0.1", 0, marks=pytest.mark.long),
        ("0.10.0.1", 1),
    ],
)
def test_the_consumer_of_that_age_reads_every_codec_we_write(version: str, magic: int) -> None:
    sets = [build_messages(ROWS, magic=magic, codec=codec, base_offset=1000) for codec in range(4)]
    assert read_by(version, sets) == [shown(1000)] * 4


def test_0_8_reads_lz4_of_several_blocks_and_of_every_level() -> None:
    # Not as a set: its own reader of sets takes what one read gives it, which ends with a block.
    text = b" ".join(b"%d" % (number * number) for number in range(40_000))
    inputs = [text, b"", b"a", bytes(65_536), random.Random(5).randbytes(200_000)]
    frames = [compress(3, data, magic=0) for data in inputs]
    frames += [compress(3, text, magic=0, level=level) for level in (1, 3, 12, 17)]
    expected = [f"{len(data)}/{zlib.crc32(data):x}" for data in [*inputs, *[text] * 4]]
    assert read_by("0.8.2.2", frames, "lz4") == expected


def test_the_right_checksum_of_lz4_is_what_0_8_refuses() -> None:
    # given the same set, compressed as for format 0 and as for format 1
    plain = build_messages(ROWS, magic=0)
    old = wrap_messages(plain, magic=0, codec=3, offset=10)
    right = build_messages([(0, None, compress(3, plain, magic=1), ())], magic=0, base_offset=10)
    right = with_codec(right, 3)
    assert len(right) == len(old)
    assert read_by("0.8.2.2", [old, right]) == [
        shown(0),
        "error Stream frame descriptor corrupted",
    ]


def with_codec(message: bytes, codec: int) -> bytes:
    changed = bytearray(message)
    changed[17] = codec
    changed[12:16] = zlib.crc32(changed[16:]).to_bytes(4, "big")
    return bytes(changed)
