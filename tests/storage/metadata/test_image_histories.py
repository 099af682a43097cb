"""Hundreds of records of all kinds: what they come to, copied, written down and foreseen."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from protocol.logdata.metadata import (
    MAX_METADATA_VERSION,
    RECORD_KEYS,
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    decode_record,
    encode_record,
)
from storage.metadata.contradictions import require_sense
from storage.metadata.image import MetadataError, MetadataImage
from storage.steps import run_here
from tests.storage.metadata.image_states import frozen, image_of, state_of
from tests.storage.metadata.random_records import MAKERS


def random_image(seed: int) -> MetadataImage:
    """The state after a few hundred records that made sense."""
    rng, image = random.Random(seed), MetadataImage()
    for _ in range(400):
        record = rng.choice(MAKERS)(rng)
        try:
            image.replay(record)
        except MetadataError:
            continue
    return image


def test_every_kind_of_record_is_made_by_the_tests_and_known_to_the_image() -> None:
    rng = random.Random(1)
    made = {type(make(rng)) for make in MAKERS}
    made |= {BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord}
    assert made == set(RECORD_KEYS.values())


@pytest.mark.parametrize("seed", range(40))
def test_the_records_of_a_state_give_that_state(seed: int) -> None:
    image = random_image(seed)

    records = list(image.records())
    again = image_of(*records)

    assert state_of(again, "removed") == state_of(image, "removed")
    assert list(again.records()) == records
    stored = [decode_record(encode_record(one, level=MAX_METADATA_VERSION)) for one in records]
    assert state_of(image_of(*stored), "removed") == state_of(image, "removed")
    if "metadata.version" in image.features:
        first = records[0]
        assert isinstance(first, FeatureLevelRecord)
        assert first.name == "metadata.version", "what comes after is in the versions of this level"


@pytest.mark.parametrize("seed", range(40))
def test_a_copy_is_not_changed_by_what_happens_to_the_original(seed: int) -> None:
    rng, image = random.Random(seed), random_image(seed)
    if seed % 2:
        image.replay(BeginTransactionRecord())
    copied = image.copy()
    assert state_of(copied, "removed") == state_of(image, "removed")
    assert all(copied.topics[name] is copied.topics_by_id[one.topic_id]
               for name, one in copied.topics.items())  # fmt: skip
    before, records = frozen(copied), list(copied.records())

    for _ in range(300):
        try:
            image.replay(rng.choice(MAKERS)(rng))
        except MetadataError:
            continue
    if seed % 2:
        with suppress(MetadataError):  # some of its records made no sense
            image.replay(EndTransactionRecord())

    assert frozen(copied) == before
    assert list(copied.records()) == records


@pytest.mark.parametrize("seed", range(60))
def test_what_makes_sense_is_what_can_be_replayed(seed: int) -> None:
    rng, image = random.Random(seed), random_image(seed)
    seen = set()
    for _ in range(60):
        records = [rng.choice(MAKERS)(rng) for _ in range(rng.randrange(1, 4))]
        before, trial = frozen(image), image.copy()
        trial.removed = dict(image.removed)
        told = replayed = ""
        try:
            run_here(require_sense(image, records))
        except MetadataError as error:
            told = str(error)
        assert frozen(image) == before
        try:
            for record in records:
                trial.replay(record)
        except MetadataError as error:
            replayed = str(error)
        else:
            image = trial
        assert told == replayed
        seen.add(bool(told))
    assert seen == {True, False}
