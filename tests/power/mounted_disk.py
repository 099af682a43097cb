"""A mounted file system whose power can be cut: `tests.support.memory_filesystem` behind FUSE.

Whatever programs write to it is in the memory of this process, with what of it would outlive a
power cut: a file's bytes after an fsync of the file, names after an fsync of their folder. A cut is
told by a line on standard output; from that moment on every call that changes something fails with
EIO. When the disk is unmounted its state goes into a file, for the next mount.

    python -m tests.power.mounted_disk STATE MOUNTPOINT

Lines on standard input arm a cut: `cut now 0`, `cut any 20` before the twentieth call from then on
that changes something, `cut rename 2` before the second rename. Each is answered with `armed`.
"""

from __future__ import annotations

import errno
import os
import pickle
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

from storage.filesystem import parent_of
from tests.support.memory_filesystem import MemoryFile, MemoryFilesystem, PowerCut

try:
    import mfusepy
except (ImportError, OSError) as error:  # the latter without libfuse
    mfusepy = None
    MISSING: str | None = f"FUSE can't be used: {error}"
else:
    MISSING = None

TOTAL_BYTES = 1 << 40
BLOCK_BYTES = 4096
KINDS = ("any", "write", "sync", "create", "rename", "remove", "truncate")
"""Calls that a cut can be armed for."""


class Disk(MemoryFilesystem):
    """The files, and the cut that is armed."""

    def __init__(self) -> None:
        super().__init__(recording=False)
        self.kind = ""
        self.left = 0
        self.is_off = False

    def arm(self, kind: str, count: int) -> None:
        self.kind, self.left = kind, count

    def about_to(self, what: str, path: str) -> None:
        if not self.is_off and self.left and self.kind in (what, "any"):
            self.left -= 1
            if not self.left:
                self.turn_off()
        if self.is_off:
            raise PowerCut(f"{what} {path}")
        super().about_to(what, path)

    def turn_off(self) -> None:
        self.is_off = True
        print("off", flush=True)


class MountedDisk(mfusepy.Operations if mfusepy is not None else object):  # type: ignore[misc]
    """The operations of FUSE. A file handle is a number; the file goes on when its name is gone."""

    use_ns = True
    flag_nopath = flag_nullpath_ok = True

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._handles: dict[int, MemoryFile] = {}
        self._folders: dict[int, str] = {}
        self._next_handle = 1
        self._lock = threading.Lock()

    def arm(self, line: str) -> None:
        """Do what a line of standard input says."""
        _, kind, count = line.split()
        with self._lock:
            if kind == "now":
                self._disk.turn_off()
            else:
                self._disk.arm(kind, int(count))
        print("armed", flush=True)

    def _change(self) -> threading.Lock:
        """Taken for every call that changes something, with the clock put right."""
        self._disk.mtime_ms = time.time_ns() // 1_000_000
        return self._lock

    def _handle(self, file: MemoryFile) -> int:
        number = self._next_handle
        self._next_handle += 1
        self._handles[number] = file
        return number

    def _file(self, path: str | None, fh: int | None) -> MemoryFile:
        if fh is not None and fh in self._handles:
            return self._handles[fh]
        assert path is not None
        return self._disk.open_to_read(path)

    # Reading

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, int]:
        if fh is None and path is not None and self._disk.is_dir(path):
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        file = self._file(path, fh)
        modified_ns = file.inode.modified_ms * 1_000_000
        return {
            "st_mode": stat.S_IFREG | 0o644,
            "st_nlink": 1,
            "st_size": file.size(),
            "st_blocks": (file.size() + 511) // 512,
            **dict.fromkeys(("st_mtime", "st_ctime", "st_atime"), modified_ns),
        }

    def opendir(self, path: str) -> int:
        self._disk.list_dir(path)  # or there is none
        number = self._next_handle
        self._next_handle += 1
        self._folders[number] = path
        return number

    def readdir(self, path: str | None, fh: int) -> list[str]:
        return [".", "..", *self._disk.list_dir(self._folders[fh])]

    def releasedir(self, path: str | None, fh: int) -> int:
        self._folders.pop(fh, None)
        return 0

    def open(self, path: str, flags: int) -> int:
        return self._handle(self._disk.open_to_read(path))

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        return self._handles[fh].pread(size, offset)

    def release(self, path: str | None, fh: int) -> int:
        self._handles.pop(fh, None)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        blocks = TOTAL_BYTES // BLOCK_BYTES
        return {
            **{"f_bsize": BLOCK_BYTES, "f_frsize": BLOCK_BYTES, "f_namemax": 255},
            **dict.fromkeys(("f_blocks", "f_bfree", "f_bavail"), blocks),
            **dict.fromkeys(("f_files", "f_ffree", "f_favail"), 1 << 20),
        }

    # Changing

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        with self._change(), _PowerFails():
            return self._handle(self._disk.open_file(path, create=True))

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        with self._change(), _PowerFails():
            self._handles[fh].write_at([data], offset)
        return len(data)

    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        with self._change(), _PowerFails():
            self._file(path, fh).truncate(length)
        return 0

    def fallocate(self, path: str | None, mode: int, offset: int, size: int, fh: int) -> int:
        with self._change(), _PowerFails():
            file = self._handles[fh]
            if not mode and offset + size > file.size():
                file.truncate(offset + size)
        return 0

    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        with self._change(), _PowerFails():
            self._handles[fh].sync()
        return 0

    def fsyncdir(self, path: str | None, datasync: int, fh: int) -> int:
        with self._change(), _PowerFails():
            self._disk.sync_dir(self._folders[fh])
        return 0

    def rename(self, old: str, new: str) -> int:
        if parent_of(old) != parent_of(new):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        with self._change(), _PowerFails():
            self._disk.rename(old, new)
        return 0

    def unlink(self, path: str) -> int:
        with self._change(), _PowerFails():
            self._disk.remove(path)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        with self._change(), _PowerFails():
            self._disk.make_dir(path)
        return 0

    def rmdir(self, path: str) -> int:
        if self._disk.list_dir(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        with self._change(), _PowerFails():
            self._disk.remove_tree(path)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        with self._change(), _PowerFails():
            if not self._disk.is_dir(path):
                ns = times[1] if times else time.time_ns()
                self._disk.set_modified_ms(path, ns // 1_000_000)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        return 0  # the broker of the tests may do everything

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0


class _Fuse(mfusepy.FUSE if mfusepy is not None else object):  # type: ignore[misc]
    """mfusepy 3.1 drops the handle that a file is truncated by, and then nobody knows the file."""

    def truncate_fuse_3(self, path: bytes | None, length: int, fip: Any) -> int:
        fh = fip.contents.fh if fip else None
        found: int = self.operations.truncate(path and path.decode(), length, fh)
        return found


class _PowerFails:
    """A power cut as a program sees it until it is killed."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, PowerCut):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def main() -> None:
    state, mountpoint = Path(sys.argv[1]), sys.argv[2]
    disk = Disk()
    if state.exists():
        disk.root = pickle.loads(state.read_bytes())
    operations = MountedDisk(disk)

    def listen() -> None:
        for line in sys.stdin:
            operations.arm(line)

    threading.Thread(target=listen, daemon=True).start()
    # One thread: the order of the calls is then the order in which they are counted.
    _Fuse(operations, mountpoint, foreground=True, nothreads=True, hard_remove=True)
    state.write_bytes(pickle.dumps(disk.root))
    os._exit(0)  # the thread that listens is amid a read, which an ordinary end waits for


if __name__ == "__main__":
    main()
