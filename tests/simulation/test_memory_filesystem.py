"""The file system in memory is the disk's twin, and forgets what a power cut may make it forget."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

import pytest

from storage.disk import DiskFilesystem
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut

if TYPE_CHECKING:
    from pathlib import Path

    from storage.filesystem import Filesystem

NAMES = ("a", "b", "c")
FOLDERS = ("", "/x", "/x/y")


def some_call(files: Filesystem, root: str, rng: random.Random) -> object:
    """One call, or a few, chosen by `rng`, and what they say."""
    folder = root + rng.choice(FOLDERS)
    path, other = f"{folder}/{rng.choice(NAMES)}", f"{folder}/{rng.choice(NAMES)}"
    size, position = rng.randrange(40), rng.randrange(60)
    data = [rng.randbytes(size), b"", rng.randbytes(3)]
    call = rng.randrange(15)
    if call < 5:
        file = files.open_file(path, create=call < 3)
        if call == 0:
            file.truncate(position)
        elif call < 4:
            file.write_at(data, position)
        file.sync()
        return file.pread(size, position), file.pread(100, 0), file.size()
    if call == 5:
        files.write_atomic(path, data[0])
        return files.read_bytes(path)
    if call == 6:
        files.rename(path, other)
    if call == 7:
        files.remove(path)
    if call == 8:
        files.make_dir(folder)
        files.sync_dir(folder)
    if call == 9 and folder != root:
        files.remove_tree(folder)
    if call == 10:
        files.set_modified_ms(path, position * 1000)
        return files.modified_ms(path)
    if call == 11:
        files.reserve(path, size)
        return files.size_of(path)
    if call == 12:
        return files.open_to_read(path).pread(size, position)
    return sorted(files.list_dir(folder)), files.exists(path), files.is_dir(path)


def outcome(files: Filesystem, root: str, rng: random.Random) -> object:
    try:
        return some_call(files, root, rng)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


@pytest.mark.parametrize("seed", range(20))
def test_the_twin_says_what_the_disk_says(seed: int, tmp_path: Path) -> None:
    disk, memory = DiskFilesystem(), MemoryFilesystem()
    memory.make_dir("/root")
    for number in range(400):
        expected = outcome(disk, str(tmp_path), random.Random(f"{seed} {number}"))
        found = outcome(memory, "/root", random.Random(f"{seed} {number}"))
        assert found == expected, f"seed {seed}, call {number}"
    for path in tmp_path.rglob("*"):
        twin = "/root" + str(path).removeprefix(str(tmp_path))
        assert memory.is_dir(twin) == path.is_dir()
        assert path.is_dir() or memory.read_bytes(twin) == path.read_bytes()


def written(*parts: bytes) -> MemoryFilesystem:
    """A file of synced zeros over which these parts were written, one after the other."""
    files = MemoryFilesystem()
    files.write_bytes("/data/file", bytes(sum(map(len, parts))))
    position = 0
    for part in parts:
        files.open_file("/data/file").write_at([part], position)
        position += len(part)
    return files


def test_any_unsynced_write_may_be_lost_or_torn_and_a_later_one_there_without_an_earlier() -> None:
    first, second = b"1" * 700, b"2" * 700
    files = written(first, second)
    seen: set[object] = set()
    for seed in range(300):
        data = files.power_cut(random.Random(seed)).read_bytes("/data/file")
        assert len(data) == 1400
        seen.add((data[:700] == first, data[700:] == second, set(data) <= set(b"12\0")))
        if 0 < data[:700].count(b"1") < 700:
            seen.add("torn")
        if data[:512] == bytes(512) and data[512:700] == first[512:]:
            seen.add("the second sector only")

    assert {(True, True, True), (False, False, True), (False, True, True)} <= seen
    assert {(True, False, True), "torn", "the second sector only"} <= seen


def test_what_was_synced_is_there_whatever_happens_after() -> None:
    files = written(b"kept" * 200)
    file = files.open_file("/data/file")
    file.sync()
    file.write_at([b"more" * 100], 800)

    for seed in range(100):
        assert files.power_cut(random.Random(seed)).read_bytes("/data/file")[:800] == b"kept" * 200


def test_what_a_failed_sync_should_have_stored_is_not_stored_by_the_next_one() -> None:
    files = written(b"lost")
    file = files.open_file("/data/file")
    files.faults = {files.count: errno.EIO}
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.write_at([b"kept"], 4)
    file.sync()

    assert file.pread(8, 0) == b"lostkept", "the page cache has it"
    for seed in range(20):
        assert files.power_cut(random.Random(seed)).read_bytes("/data/file") == bytes(4) + b"kept"
    files.kill()
    assert files.read_bytes("/data/file") == b"lostkept", "and it outlives the process"
    file.reread(2)
    assert files.read_bytes("/data/file") == b"lo\0\0kept"
    file.reread(0)
    assert files.read_bytes("/data/file") == bytes(4) + b"kept"


def test_a_killed_process_loses_nothing_that_was_written() -> None:
    files = written(b"there")
    files.rename("/data/file", "/data/other")
    files.cut_at = files.count
    with pytest.raises(PowerCut):
        files.remove("/data/other")
    files.kill()

    assert files.read_bytes("/data/other") == b"there"
    assert files.power_cut(random.Random(3)) is not files


@pytest.mark.parametrize("in_order", [True, False])
def test_names_that_were_not_synced_are_kept_in_order_unless_the_worst_is_asked_for(
    in_order: bool,
) -> None:
    files = MemoryFilesystem()
    files.make_dir("/data")
    files.sync_all()
    for name in ("first", "second", "third"):
        files.open_file(f"/data/{name}", create=True)
    files.rename("/data/first", "/data/last")

    found = set()
    for seed in range(300):
        survivor = files.power_cut(random.Random(seed), names_in_order=in_order)
        found.add(tuple(sorted(survivor.list_dir("/data"))))

    prefixes = {(), ("first",), ("first", "second"), ("first", "second", "third")}
    prefixes.add(("last", "second", "third"))
    assert prefixes <= found
    assert (found == prefixes) is in_order
    assert not any("first" in names and "last" in names for names in found), "a rename is whole"


def test_survivors_of_one_moment_do_not_share_what_is_written_later() -> None:
    files = written(b"same")
    files.sync_all()
    one, other = (files.power_cut(random.Random(seed)) for seed in range(2))
    one.open_file("/data/file").write_at([b"else"], 0)

    assert files.read_bytes("/data/file") == other.read_bytes("/data/file") == b"same"


def contents(files: MemoryFilesystem, folder: str = "/") -> dict[str, tuple[int, bytes] | None]:
    """Every file's time and bytes, and None for folders, by path."""
    found: dict[str, tuple[int, bytes] | None] = {}
    for name in files.list_dir(folder):
        path = f"{folder.rstrip('/')}/{name}"
        if files.is_dir(path):
            found |= {path: None, **contents(files, path)}
        else:
            found[path] = (files.modified_ms(path), files.read_bytes(path))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_look_at_every_call_of_one_run_finds_what_a_cut_at_that_call_leaves(seed: int) -> None:
    def begun() -> MemoryFilesystem:
        files = MemoryFilesystem()
        files.make_dir("/root")
        return files

    def run(files: MemoryFilesystem) -> None:
        for number in range(150):
            files.mtime_ms += 1
            outcome(files, "/root", random.Random(f"{seed} {number}"))

    def left(files: MemoryFilesystem) -> list[MemoryFilesystem]:
        return [files.power_cut(random.Random(cut)) for cut in range(3)] + [files.copy()]

    whole = begun()
    looks = whole.at_every_call(lambda: run(whole), lambda: left(whole))
    assert len(looks) == whole.count - begun().count > 50
    for number, looked in enumerate(looks, begun().count):
        files = begun()
        files.cut_at = number
        with pytest.raises(PowerCut):
            run(files)
        assert list(map(contents, looked)) == list(map(contents, left(files))), number
    unseen = begun()
    run(unseen)
    assert contents(whole) == contents(unseen), "looking changes nothing"
