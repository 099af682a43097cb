"""Segments that Apache Kafka's own classes wrote are flawless, and spoiling them is found."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from storage.layout import file_name
from tests.storage.inspection.directories import ORDERS, Contents, findings, in_memory, spoilt
from tests.storage.logs import Vector, decoded, vectors

if TYPE_CHECKING:
    from storage.inspection.findings import Finding

SUFFIXES = ("log", "index", "timeindex")
FORMAT_0 = "only-v0"
"""Without timestamps there is nothing in a time index."""


def contents_of(vector: Vector) -> Contents:
    base = file_name(int(vector["base_offset"]), "")
    epochs = b"0\n1\n0 %d\n" % vector["base_offset"]
    return {
        "orders-0/leader-epoch-checkpoint": epochs,
        "orders-0/partition.metadata": b"version: 0\ntopic_id: nRMOekHIQQeeynIFtdFb-Q",
        **{f"orders-0/{base}.{suffix}": decoded(vector["expect"][suffix]) for suffix in SUFFIXES},
    }


def found_in(contents: Contents) -> list[Finding]:
    return findings(in_memory(contents), ORDERS)


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector["id"]))
def test_a_segment_of_kafkas_is_flawless(vector: Vector) -> None:
    assert found_in(contents_of(vector)) == []


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector["id"]))
def test_what_is_changed_in_its_log_is_found(vector: Vector) -> None:
    contents = contents_of(vector)
    (log,) = [name for name in contents if name.endswith(".log")]
    for seed in range(60):
        what, data = spoilt(random.Random(seed), contents[log])
        if contents[log].startswith(data) or data[:-1].rstrip(b"\0") == contents[log]:
            continue  # a cut at the end of an entry leaves a log that is shorter, and whole
        assert found_in(contents | {log: data}), f"seed {seed}: {what}"


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector["id"]))
def test_an_index_of_another_segment_is_found(vector: Vector) -> None:
    contents = contents_of(vector)
    others = [other for other in vectors() if other["id"] != vector["id"]]
    for suffix in SUFFIXES[1:]:
        (name,) = [name for name in contents if name.endswith(f".{suffix}")]
        for other in others:
            data = decoded(other["expect"][suffix])
            if data and data != contents[name] and vector["id"] != FORMAT_0:
                assert found_in(contents | {name: data}), f"{suffix} of {other['id']}"
