"""The entries of an index: in memory, or those at the beginning in the index file alone.

Two columns, both of which rise. Entries that are in the file may be let go of; then a look-up among
them reads one page of the file, which it finds by a binary search for the first entries of pages.
Pages read lately stay, of all indexes together `PAGES_MAX`.

A file may have lost what was put into it. A page that cannot be right, or cannot be read, has the
index made whole again by its segment; what only looks right is found by the walk over the log
(`storage.verified`), as with an index that is read at a start.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from itertools import count
from typing import TYPE_CHECKING, ClassVar

from storage.errors import NO_DESCRIPTORS

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable
    from typing import Self

    from storage.filesystem import File, Filesystem

    Columns = tuple[array[int], array[int]]

PAGE_ENTRIES = 512
"""Entries that are read together: 4 KiB of an offset index, 6 KiB of a time index."""
PAGES_MAX = 512
"""Pages in memory, 3 MiB."""
KEPT_ENTRIES = 16
"""Entries at the end that stay in memory: what an append needs, and readers near the end."""
SWAPPED = sys.byteorder == "little"

_serials = count()


class IndexDamaged(Exception):
    """An index file does not hold what was put into it."""


class Pages:
    """Pages by index and number, the least recently used first."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: dict[tuple[int, int], Columns] = {}

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: tuple[int, int]) -> Columns | None:
        page = self._all.pop(key, None)
        if page is not None:
            self._all[key] = page
        return page

    def put(self, key: tuple[int, int], page: Columns) -> None:
        self._all.pop(key, None)
        while len(self._all) >= PAGES_MAX:
            del self._all[next(iter(self._all))]
        self._all[key] = page


PAGES = Pages()
"""The pages of this process. Belongs to the thread that all logs belong to."""


def _rise(columns: Columns) -> bool:
    first, second = (column.tolist() for column in columns)
    return len(set(first)) == len(first) and first == sorted(first) and second == sorted(second)


class IndexFile:
    """The file of an index whose entries are not all in memory.

    `make_whole` brings them back into memory in another way when the file is found to be wrong;
    None while the index is being opened, and whoever opens it has to take another way himself.
    """

    __slots__ = ("_files", "_path", "make_whole")

    def __init__(self, files: Filesystem, path: str) -> None:
        self._files = files
        self._path = path
        self.make_whole: Callable[[], None] | None = None

    def open(self) -> File:
        return self._files.open_file(self._path)


class IndexColumns:
    """Two columns of numbers. `dropped` entries at the beginning are in the file only; there is an
    entry in memory then, the last one at least."""

    ENTRY_SIZE: ClassVar[int]
    PARTS: ClassVar[tuple[tuple[int, int], tuple[int, int]]]
    """Where in the bytes of an entry the numbers of both columns begin, and their sizes."""

    __slots__ = ("_file", "_first", "_looked_in", "_second", "_serial", "dropped", "stored")

    def __init__(self, columns: Columns) -> None:
        self._first, self._second = columns
        self.dropped = 0
        self.stored = 0
        """Entries that are in the file already."""
        self._file: IndexFile | None = None
        self._serial = next(_serials)
        self._looked_in = 0  # the page of the last look-up

    @staticmethod
    def decoded(data: bytes) -> Columns:
        """The columns of these bytes of a file."""
        raise NotImplementedError

    @staticmethod
    def encoded(first: array[int], second: array[int]) -> bytes:
        """The bytes of entries."""
        raise NotImplementedError

    @classmethod
    def opened(cls, file: IndexFile) -> Self | None:
        """The index in a file of which only the end is read; None if the file is a short one, or
        ends otherwise than in entries. Raises OSError."""
        opened = file.open()
        try:
            size = opened.size()
            if size % cls.ENTRY_SIZE or size < PAGE_ENTRIES * cls.ENTRY_SIZE:
                return None
            index = cls()  # type: ignore[call-arg]
            index._file = file
            index.stored = index.dropped = size // cls.ENTRY_SIZE
            index._take_end(opened, index.stored)
        except IndexDamaged:
            return None
        finally:
            opened.close()
        return index

    def on_damage(self, make_whole: Callable[[], None]) -> None:
        """From now on, have this called where the file is found to be wrong."""
        if self._file is not None:
            self._file.make_whole = make_whole

    def __len__(self) -> int:
        return self.dropped + len(self._second)

    @property
    def in_memory(self) -> int:
        """Number of entries in memory."""
        return len(self._second)

    def let_go(self, file: IndexFile) -> None:
        """Give back the memory of entries that are in this file, but for the last ones."""
        end = min(self.stored, len(self)) - KEPT_ENTRIES
        if end > self.dropped:
            begin = end - self.dropped
            self._first, self._second = self._first[begin:], self._second[begin:]
            self.dropped, self._file = end, file

    def put_before(self, index: IndexColumns) -> bool:
        """Have the entries of an index that is in memory in the place of those let go of, but for
        those that are here already. False, and nothing happens, if they do not belong there."""
        first, second = index._first, index._second
        if self._first:
            count = bisect_left(first, self._first[0])
            first, second = first[:count], second[:count]
            if second and second[-1] > self._second[0]:
                return False
        if len(first) != self.dropped:
            self.stored = 0
        self._first, self._second = first + self._first, second + self._second
        self.dropped, self._file, self._serial = 0, None, next(_serials)
        return True

    def entry(self, number: int) -> tuple[int, int]:
        """An entry by its number."""
        if number < self.dropped:
            try:
                page = self._page(number // PAGE_ENTRIES)
                number %= PAGE_ENTRIES
                return page[0][number], page[1][number]
            except (OSError, IndexDamaged) as error:
                self._make_whole(error)
                number = min(number, len(self) - 1)  # it may have come to have fewer
        number -= self.dropped
        return self._first[number], self._second[number]

    def make_whole(self) -> None:
        """Have all entries in memory."""
        self._make_whole(IndexDamaged("the index is to be changed"))

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        self.stored = min(self.stored, count)
        if self.dropped and count <= self.dropped:
            try:
                file = self._open()
                try:
                    self._take_end(file, count)
                finally:
                    file.close()
                self._serial = next(_serials)
                return
            except (OSError, IndexDamaged) as error:
                self._make_whole(error)
        del self._first[count - self.dropped :]
        del self._second[count - self.dropped :]

    def encode(self, first: int = 0) -> bytes:
        """The bytes of the entries from index `first` on. Raises OSError."""
        stored = b""
        if first < self.dropped:
            file = self._open()
            try:
                size = (self.dropped - first) * self.ENTRY_SIZE
                stored = file.pread(size, first * self.ENTRY_SIZE)
            finally:
                file.close()
            if len(stored) != size:
                self._make_whole(IndexDamaged(f"entry {first}: the file ends"))
                return self.encode(first)
            first = self.dropped
        begin = first - self.dropped
        return stored + self.encoded(self._first[begin:], self._second[begin:])

    def _count_below(self, column: int, value: int) -> int:
        """Number of entries with a smaller number in this column."""
        kept = self._second if column else self._first
        if self.dropped and kept[0] >= value:
            try:
                return self._count_in_file(column, value)
            except (OSError, IndexDamaged) as error:
                self._make_whole(error)
            kept = self._second if column else self._first
        return self.dropped + bisect_left(kept, value)

    def _count_up_to(self, column: int, value: int) -> int:
        """Number of entries with this number or a smaller one in this column."""
        return self._count_below(column, value + 1)

    def _last_up_to(self, column: int, value: int) -> tuple[int, int] | None:
        """The last entry with this number or a smaller one in this column."""
        for _ in range(2):
            number = self._count_up_to(column, value)
            if not number:
                break
            found = self.entry(number - 1)
            if found[column] <= value:
                return found
            if self.dropped:
                self._make_whole(IndexDamaged("pages contradict each other"))
        return None

    # What is in the file alone

    def _open(self) -> File:
        assert self._file is not None
        return self._file.open()

    def _make_whole(self, error: Exception) -> None:
        make_whole = self._file.make_whole if self._file is not None else None
        if make_whole is None or (isinstance(error, OSError) and error.errno in NO_DESCRIPTORS):
            raise error
        make_whole()
        assert not self.dropped

    def _take_end(self, file: File, end: int) -> None:
        """Have the last entries before number `end` in memory, and no others."""
        first = max(end - KEPT_ENTRIES, 0)
        self._first, self._second = self._read(file, first, end - first)
        self.dropped = first

    def _read(self, file: File, first: int, count: int) -> Columns:
        """Raises IndexDamaged if these cannot be entries."""
        size = count * self.ENTRY_SIZE
        data = file.pread(size, first * self.ENTRY_SIZE)
        if len(data) != size:
            raise IndexDamaged(f"entry {first}: the file ends")
        columns = self.decoded(data)
        # Strictly rising numbers of the first column are not below those of their entries.
        if count and (columns[0][0] < first or columns[1][0] < 0 or not _rise(columns)):
            raise IndexDamaged(f"entry {first}: entries do not rise")
        return columns

    def _page(self, number: int, file: File | None = None) -> Columns:
        """A page as far as its entries have been let go of."""
        key = self._serial, number
        begin = number * PAGE_ENTRIES
        size = min(PAGE_ENTRIES, self.dropped - begin)
        page = PAGES.get(key)
        if page is None or len(page[1]) < size:
            own = self._open() if file is None else file
            try:
                page = self._read(own, begin, size)
            finally:
                if file is None:
                    own.close()
            PAGES.put(key, page)
        self._looked_in = number
        return page

    def _count_in_file(self, column: int, value: int) -> int:
        key = self._serial, self._looked_in
        page = PAGES.get(key)
        if page is not None and page[column][0] < value <= page[column][-1]:
            return self._looked_in * PAGE_ENTRIES + bisect_left(page[column], value)
        file = self._open()
        try:
            pages = range(1, -(-self.dropped // PAGE_ENTRIES))

            begin, size = self.PARTS[column]
            pread, page_bytes = file.pread, PAGE_ENTRIES * self.ENTRY_SIZE

            def first_of(number: int) -> int:
                data = pread(size, number * page_bytes + begin)
                if len(data) != size:
                    raise IndexDamaged(f"page {number}: the file ends")
                return int.from_bytes(data, "big", signed=True)

            number = bisect_left(pages, value, key=first_of)
            page = self._page(number, file)
        finally:
            file.close()
        return number * PAGE_ENTRIES + bisect_left(page[column], value)
