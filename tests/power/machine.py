"""A broker on a disk whose power can be cut, and started again on what was left.

with Machine(tmp_path) as machine:
    machine.broker.bootstrap
    machine.cut("rename", 2, within_s=5)
    machine.start_again(rng)
"""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.power import mounted_disk
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

MOUNTED_WITHIN_S = 60.0


class CannotMount(Exception):
    """The disk was not mounted, or could not be unmounted."""


@functools.cache
def missing() -> str | None:
    """Why no disk can be mounted here; None if one can."""
    if mounted_disk.MISSING:
        return mounted_disk.MISSING
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is not there, or may not be used"
    with tempfile.TemporaryDirectory() as folder:
        try:
            Mount(Path(folder) / "state", Path(folder) / "disk").unmount()
        except CannotMount as error:
            return f"a disk can't be mounted: {error}"
    return None


class Mount:
    """One mount, in a process of its own."""

    def __init__(self, state: Path, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._off, self._armed = threading.Event(), threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.power.mounted_disk", str(state), str(folder)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        deadline_s = time.monotonic() + MOUNTED_WITHIN_S
        while not os.path.ismount(folder):
            if self._process.poll() is not None:
                raise CannotMount(f"it ended with {self._process.returncode}")
            assert time.monotonic() < deadline_s, "the disk was not mounted in time"
            time.sleep(0.01)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            (self._off if line.strip() == "off" else self._armed).set()

    def cut(self, kind: str, count: int, *, within_s: float) -> None:
        """Cut the power before that many calls of this kind, or when the time is over."""
        self.arm(kind, count)
        if not self._off.wait(within_s):
            self.arm("now", 0)
            assert self._off.wait(MOUNTED_WITHIN_S), "the power stays on"

    def arm(self, kind: str, count: int) -> None:
        """Have the power fail before that many calls of this kind, from now on."""
        assert self._process.stdin is not None
        self._armed.clear()
        self._process.stdin.write(f"cut {kind} {count}\n")
        self._process.stdin.flush()
        assert self._armed.wait(MOUNTED_WITHIN_S), "no cut was armed"

    def unmount(self) -> None:
        """End the process; it then has written its state. Waits until nobody uses the disk."""
        deadline_s = time.monotonic() + MOUNTED_WITHIN_S
        while True:
            done = subprocess.run(
                ["umount", str(self._folder)], capture_output=True, text=True, check=False
            )
            if not done.returncode:
                break
            # The process that compacts outlives a killed broker by a moment.
            if "busy" not in done.stderr or time.monotonic() > deadline_s:
                raise CannotMount(done.stderr.strip())
            time.sleep(0.05)
        self._process.wait(MOUNTED_WITHIN_S)
        self._close()

    def _close(self) -> None:
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def give_up(self) -> None:
        """Take the mount away, whatever uses it."""
        if self._process.poll() is None:
            subprocess.run(["umount", "-l", str(self._folder)], check=False)
            try:
                self._process.wait(MOUNTED_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._close()


class Machine:
    """A disk and its broker. `left` says what the last cut took: bytes before and after it."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._state = folder / "state"
        self._mountpoint = folder / "disk"
        self._mount = Mount(self._state, self._mountpoint)
        self.broker = BrokerProcess(self._mountpoint / "data", settings=settings)
        self.left = (0, 0)

    def cut(self, kind: str, count: int, *, within_s: float) -> None:
        """The power fails; the broker dies with it."""
        self._mount.cut(kind, count, within_s=within_s)
        self.broker.kill()
        self._mount.unmount()

    def start_again(self, rng: random.Random) -> None:
        """Power is back: mount what the disk has, and start. Raises ServerFailed."""
        files = MemoryFilesystem(pickle.loads(self._state.read_bytes()), recording=False)
        survivor = files.power_cut(rng)
        self.left = files.used_bytes(), survivor.used_bytes()
        self._state.write_bytes(pickle.dumps(survivor.root))
        self._mount = Mount(self._state, self._mountpoint)
        self.broker.start()

    def __enter__(self) -> Self:
        try:
            self.broker.start()
        except BaseException:
            self._mount.give_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.broker.run is not None:
            self.broker.kill()
        self._mount.give_up()
