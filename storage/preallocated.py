"""Reading a file of fixed-size entries that may have been made longer than its content.

Apache Kafka makes the index files of the segment that it appends to at their full size, 10 MiB
each, and cuts them when it seals or closes the segment. After a crash they end in zeros. Here only
what comes before these is read: a node with thousands of partitions has tens of gigabytes of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.filesystem import Filesystem


def read_entries(files: Filesystem, path: str, entry_size: int) -> bytes:
    """The file up to an entry that is followed by one of zeros, or else to its end.

    That is the end of the content if zeros come only behind it. If they stand in the middle too,
    less or more may be returned; whoever decodes it finds entries that do not rise. A file that
    does not consist of entries is returned whole. Raises OSError.
    """
    file = files.open_file(path)
    try:
        size = file.size()
        if size and not size % entry_size and not any(file.pread(entry_size, size - entry_size)):
            low, high = 0, size // entry_size - 1  # the entry at `high` is one of zeros
            while low < high:
                middle = (low + high) // 2
                if any(file.pread(entry_size, middle * entry_size)):
                    low = middle + 1
                else:
                    high = middle
            size = low * entry_size
        return file.pread(size, 0) if size else b""
    finally:
        file.close()
