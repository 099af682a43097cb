"""What is said of errors that storage raises."""

from __future__ import annotations

import errno

from storage.errors import StorageError, is_disk_full


def test_a_full_disk_is_found_among_the_causes() -> None:
    error = StorageError("the disk refused")
    error.__cause__ = OSError(errno.ENOSPC, "no room")

    assert is_disk_full(error)


def test_an_error_that_is_its_own_cause_is_looked_at_once() -> None:
    error = StorageError("the disk refused")
    error.__cause__ = error

    assert not is_disk_full(error)
