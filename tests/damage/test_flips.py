"""A flipped bit costs the batch that it is in at the most; nothing is read that was never written.

`make flips` runs more of them; `TEST_FLIPS` and `TEST_FLIP_SEED` hold here too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.damage.callers import Spoiled, entries_of
from tests.damage.ledger import Ledger
from tests.support.broker_process import CHECKOUT
from tests.support.caller import batch
from tests.support.old_sets import GZIP, messages, wrapper

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

FLIPS = 100
RUN_S = 900

SETS = {
    "format 2": batch(b"first", b"second"),
    "format 1": messages(b"first", b"second", magic=1),
    "format 0, compressed": wrapper(messages(b"first", b"second", magic=0), magic=0, offset=1),
    "format 1, compressed": wrapper(messages(b"a", b"b", magic=1), magic=1, codec=GZIP, offset=1),
}


@pytest.mark.slow
@pytest.mark.timeout(RUN_S + 60)
def test_a_bit_that_flips_before_a_start_or_under_a_broker_costs_its_batch_at_the_most() -> None:
    environ = {"TEST_FLIPS": str(FLIPS), "TEST_FLIP_SEED": "14", **os.environ}

    # A process of its own: it forks brokers, which a process with threads should not.
    done = subprocess.run(
        [sys.executable, "-m", "tests.damage.run"],
        cwd=CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )

    found = set(re.findall(r"^([A-Z ]+): ", done.stdout, re.MULTILINE))
    assert not found, done.stdout[-6000:] + done.stderr[-2000:]
    assert f"{FLIPS} flips in" in done.stdout or "TEST_FLIPS" in os.environ, done.stderr[-2000:]


@pytest.mark.parametrize("records", SETS.values(), ids=SETS)
def test_the_client_notices_every_bit_that_a_checksum_covers(records: bytes) -> None:
    (first, *_) = entries_of(records)
    covered = range(17 if first.magic == 2 else 12, len(first.raw))

    for position in covered:
        spoilt = bytearray(records)
        spoilt[position] ^= 1 << position % 8
        with pytest.raises(Spoiled):
            list(entries_of(bytes(spoilt)))


@pytest.mark.parametrize("records", SETS.values(), ids=SETS)
def test_a_ledger_knows_the_batch_of_every_byte_and_every_offset(
    records: bytes, tmp_path: Path
) -> None:
    name = f"{0:020d}.log"
    (tmp_path / name).write_bytes(records)

    ledger = Ledger.of(tmp_path)

    assert ledger.end == 2
    assert [record.value for record in ledger.records()] in ([b"first", b"second"], [b"a", b"b"])
    for position in range(len(records)):
        index = ledger.at(name, position)
        assert index is not None
        found = ledger.batches[index]
        assert records[position] == found.raw[position - found.position]
        assert ledger.first_at(found.base) == ledger.first_at(found.last) == index
    assert ledger.at(name, len(records)) is None
