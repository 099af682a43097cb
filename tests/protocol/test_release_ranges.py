"""The table of releases against the releases themselves."""

from __future__ import annotations

import pytest

from protocol.release_ranges import READ_FROM
from protocol.releases import Release
from tests.clients.available import end_of_test
from tests.support import release_ranges
from tests.support.fetched import NotAvailable


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_table_is_what_the_jars_of_the_releases_say() -> None:
    """`python -m tests.support.release_ranges` writes it anew."""
    try:
        written = release_ranges.written()
    except NotAvailable as reason:
        end_of_test("java", str(reason))

    assert written == release_ranges.WRITTEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", READ_FROM)
def test_a_release_is_one_of_the_versions_that_are_read(name: str) -> None:
    assert release_ranges.name_of(Release(name).version) == name
    assert READ_FROM[name] in release_ranges.versions()
