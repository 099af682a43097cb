"""The door to the disk, and that its twin in memory behaves alike."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from storage import filesystem
from storage.disk import DiskFilesystem
from storage.linux_files import LinuxFilesystem
from storage.portable_files import PortableFilesystem, move_files, rename_patiently
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from pathlib import Path

    from storage.filesystem import Filesystem


@pytest.fixture(params=["linux", "portable", "memory"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Filesystem, str]:
    if request.param != "memory":
        return {"linux": LinuxFilesystem, "portable": PortableFilesystem}[request.param](), str(
            tmp_path
        )
    files = MemoryFilesystem()
    files.make_dir("/root")
    return files, "/root"


def test_files_are_written_and_read_at_positions(both: tuple[Filesystem, str]) -> None:
    files, root = both
    file = files.open_file(f"{root}/a", create=True)

    file.write_at([b"hello ", bytearray(b"wide "), memoryview(b"world")], 0)
    file.write_at([b"HE"], 0)
    file.write_at([b"!"], 20)
    file.sync()

    assert file.pread(100, 0) == b"HEllo wide world\0\0\0\0!"
    assert file.pread(4, 6) == b"wide"
    assert file.pread(4, 99) == b""
    assert (file.size(), files.size_of(f"{root}/a")) == (21, 21)
    file.truncate(5)
    assert files.read_bytes(f"{root}/a") == b"HEllo"
    again = files.open_file(f"{root}/a", create=True)
    assert again.size() == 5, "an existing file keeps its content"


def test_a_file_that_is_read_only_is_still_read_renamed_and_removed(
    both: tuple[Filesystem, str],
) -> None:
    files, root = both
    files.write_atomic(f"{root}/a", b"for ever")
    files.make_read_only(f"{root}/a")
    files.rename(f"{root}/a", f"{root}/b")
    assert files.open_to_read(f"{root}/b").pread(100, 0) == b"for ever"
    if os.geteuid() or isinstance(files, MemoryFilesystem):  # root may write to anything
        with pytest.raises(PermissionError):
            files.open_file(f"{root}/b")
    files.remove(f"{root}/b")
    assert not files.exists(f"{root}/b")


def test_names_come_and_go(both: tuple[Filesystem, str]) -> None:
    files, root = both
    files.make_dir(f"{root}/x/y")
    files.make_dir(f"{root}/x/y")
    files.write_atomic(f"{root}/x/a", b"one")
    files.write_atomic(f"{root}/x/a", b"two")
    files.rename(f"{root}/x/a", f"{root}/x/b")
    files.sync_dir(f"{root}/x")

    assert sorted(files.list_dir(f"{root}/x")) == ["b", "y"]
    assert files.read_bytes(f"{root}/x/b") == b"two"
    assert files.is_dir(f"{root}/x/y")
    assert not files.is_dir(f"{root}/x/b")
    assert files.exists(f"{root}/x/b")
    assert files.modified_ms(f"{root}/x/b") > 1_600_000_000_000
    files.remove(f"{root}/x/b")
    files.remove(f"{root}/x/b")
    files.remove_tree(f"{root}/x")
    assert not files.exists(f"{root}/x")
    for missing in (files.read_bytes, files.size_of, files.open_file, files.list_dir):
        with pytest.raises(FileNotFoundError):
            missing(f"{root}/x")


def test_a_lock_is_exclusive_until_it_is_released(both: tuple[Filesystem, str]) -> None:
    files, root = both
    lock = files.lock(f"{root}/.lock")

    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    lock.release()
    assert not files.exists(f"{root}/.lock")
    files.lock(f"{root}/.lock").release()


def test_another_process_with_a_posix_lock_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    code = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError, match="another process"):
            DiskFilesystem().lock(str(path))
        assert other.stdin is not None
        other.stdin.close()
        other.wait()
    DiskFilesystem().lock(str(path)).release()


LOCKS = (
    "import fcntl, sys; file = open(sys.argv[1], 'w')\n"
    "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    "except OSError: print('refused')\n"
    "else: print('locked')"
)


def posix_lock(path: Path) -> str:
    """What another process meets that asks for a lock of the kind that Kafka takes."""
    words = [sys.executable, "-c", LOCKS, str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.linux
def test_an_inherited_lock_is_held_until_the_last_process_that_has_it_has_gone(
    tmp_path: Path,
) -> None:
    path = tmp_path / ".lock"
    program = (
        "import os, sys; from storage.disk import DiskFilesystem\n"
        "lock = DiskFilesystem().lock(sys.argv[1], inherited=True)\n"
        "if os.fork(): print('taken', flush=True); os._exit(0)\n"
        "sys.stdin.read()"
    )
    words = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"taken\n"
        assert parent.wait(60) == 0
        assert posix_lock(path) == "refused", "the child has it"
        with pytest.raises(BlockingIOError):
            DiskFilesystem().lock(str(path), inherited=True)
        parent.stdin.close()
        while posix_lock(path) == "refused":
            pass

    DiskFilesystem().lock(str(path)).release()


@pytest.mark.linux
def test_an_inherited_lock_is_refused_where_somebody_has_another(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = DiskFilesystem().lock(path)
    with pytest.raises(BlockingIOError):
        DiskFilesystem().lock(path, inherited=True)
    lock.release()

    lock = DiskFilesystem().lock(path, inherited=True)
    with pytest.raises(BlockingIOError):
        DiskFilesystem().lock(path)
    lock.release()
    assert not (tmp_path / ".lock").exists()


def test_a_holder_of_the_other_kind_of_lock_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """`flock` says nothing about Kafka's lock, in either direction."""
    path = tmp_path / ".lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    lock = DiskFilesystem().lock(str(path))

    lock.release()
    os.close(descriptor)


def test_a_short_write_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_most_seven(descriptor: int, buffers: list[bytes], position: int) -> int:
        return os.pwrite(descriptor, b"".join(buffers)[:7], position)

    monkeypatch.setattr(os, "pwritev", at_most_seven)
    file = LinuxFilesystem().open_file(str(tmp_path / "a"), create=True)

    file.write_at([b"abc", b"", b"defghijklm", b"nopqrstuvwxyz"], 3)

    assert file.pread(100, 3) == b"abcdefghijklmnopqrstuvwxyz"
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(OSError, match="no more bytes") as raised:
        file.write_at([b"x"], 0)
    assert raised.value.errno == errno.ENOSPC


def test_a_short_write_at_the_moved_position_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    file = PortableFilesystem().open_file(str(tmp_path / "a"), create=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
        file.write_at([b"abc", b"", b"defghijklm", b"nopqrstuvwxyz"], 3)
    assert file.pread(100, 3) == b"abcdefghijklmnopqrstuvwxyz"

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda *_: 0)
        with pytest.raises(OSError, match="no more bytes") as raised:
            file.write_at([b"x"], 0)
    assert raised.value.errno == errno.ENOSPC


def test_threads_that_share_a_file_read_and_write_where_they_mean_to(tmp_path: Path) -> None:
    file = PortableFilesystem().open_file(str(tmp_path / "a"), create=True)
    size, turns = 1000, 200

    def own_part(number: int) -> bool:
        content = bytes([number]) * size
        for _ in range(turns):
            file.write_at([content], number * size)
            if file.pread(size, number * size) != content:
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(own_part, range(8)))
    assert file.size() == 8 * size


def test_the_reserve_of_a_system_without_fallocate_takes_its_room_too(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    PortableFilesystem().reserve(str(path), 3_000_000)
    status = path.stat()
    assert status.st_size == 3_000_000
    assert status.st_blocks * 512 >= 3_000_000, "a sparse file would keep nothing free"


def test_a_folder_whose_files_are_open_gets_its_new_name_file_by_file(tmp_path: Path) -> None:
    """As on Windows, which renames no such folder."""
    files = PortableFilesystem()
    old, new = f"{tmp_path}/orders-0", f"{tmp_path}/orders-0.1.delete"
    files.make_dir(old)
    for name in ("partition.metadata", "00000000000000000000.log"):
        files.write_atomic(f"{old}/{name}", name.encode())
    held = files.open_to_read(f"{old}/00000000000000000000.log")

    move_files(old, new)

    assert not files.exists(old)
    assert files.read_bytes(f"{new}/partition.metadata") == b"partition.metadata"
    assert held.pread(100, 0) == b"00000000000000000000.log"


def test_a_name_that_somebody_has_open_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As scanners of viruses do on Windows."""
    replace, refusals = os.replace, iter([PermissionError, PermissionError])

    def refuse_twice(old: str, new: str) -> None:
        for refusal in refusals:
            raise refusal(errno.EACCES, "in use", old)
        replace(old, new)

    files = PortableFilesystem()
    files.write_atomic(f"{tmp_path}/a", b"content")
    monkeypatch.setattr(os, "replace", refuse_twice)
    rename_patiently(f"{tmp_path}/a", f"{tmp_path}/b")
    assert files.read_bytes(f"{tmp_path}/b") == b"content"


def test_more_buffers_than_one_call_takes_are_all_written(tmp_path: Path) -> None:
    file = DiskFilesystem().open_file(str(tmp_path / "a"), create=True)
    buffers = [b"%04d" % number for number in range(2 * filesystem.IOV_MAX + 7)]

    file.write_at(buffers, 0)

    assert file.pread(1 << 20, 0) == b"".join(buffers)


def test_a_file_is_closed_when_nobody_has_it_any_more(tmp_path: Path) -> None:
    file = DiskFilesystem().open_file(str(tmp_path / "a"), create=True)
    descriptor = file.fileno()
    os.fstat(descriptor)

    del file

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_files_are_not_inherited_by_other_programs(tmp_path: Path) -> None:
    file = DiskFilesystem().open_file(str(tmp_path / "a"), create=True)

    assert not os.get_inheritable(file.fileno())
