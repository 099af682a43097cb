"""The one console of several processes, kept beside them by their supervisor.

So it outlives each of them, with what it remembers: who is logged in, and the last hour. The ports
of the figures outlive them too. They are opened here before there is any process, so that one that
has died and come back is asked where it was asked before.
"""

from __future__ import annotations

import os
import selectors
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from broker import clock, logs
from broker.background.child_process import spawn
from broker.console import Asked, Waits, open_pages
from broker.processes.shared import Figures

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence

    from broker.console import Pages
    from broker.network.listening import Bound
    from config import BrokerSettings
    from storage.filesystem import Filesystem

FIGURES_HOST = "127.0.0.1"
BACKLOG = 128
READ_BYTES = 65_536
COMPLAINT_BYTES_MAX = 65_536


def open_console(
    module: str, settings: BrokerSettings, files: Filesystem, bound: Sequence[Bound]
) -> ConsoleBeside:
    """Listen for browsers. `module` will serve them, `bound` has the listeners of each process.
    Raises CannotServe, OSError."""
    pages = open_pages(settings, files)
    figures = Figures([_figures_socket() for _ in bound], pages.token)
    brokers = []
    for number, (listeners, one) in enumerate(zip(bound, figures.sockets, strict=True)):
        door = next(each for each in listeners if each.name == pages.door.listener.name)
        brokers.append(Asked(settings.node_id + number, door.port, one.getsockname()[1]))
    return ConsoleBeside(module, pages, figures, brokers)


def _figures_socket() -> socket.socket:
    one = socket.create_server((FIGURES_HOST, 0), backlog=BACKLOG)
    one.setblocking(False)
    return one


class ConsoleBeside:
    """The process of the console, as the supervisor keeps it (`broker.supervision.supervisor`)."""

    def __init__(
        self,
        module: str,
        pages: Pages,
        figures: Figures,
        brokers: Sequence[Asked],
        *,
        monotonic_s: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        """`module` is run, and asks all these brokers."""
        self.figures = figures
        self.url = pages.url
        self._module = module
        self._pages = pages
        self._line = pages.first_line(brokers)
        self._now_s = monotonic_s
        self._selector: selectors.BaseSelector | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ended_fd = -1
        """A descriptor by which the end of the process is known."""
        self._complained = b""
        self._started_s = 0.0
        self._waits = Waits()
        self.due_s: float | None = None
        """When it is to be started again."""

    def begin(self, selector: selectors.BaseSelector) -> None:
        """Start it, and from now on again whenever it has ended."""
        self._selector = selector
        self._pages.announce()
        self._start(selector)

    def look(self, now_s: float) -> None:
        """Start it again, if it is time."""
        if self.due_s is not None and now_s >= self.due_s and self._selector is not None:
            self.due_s = None
            self._start(self._selector)

    def end(self) -> None:
        """End it for good."""
        self._selector = self.due_s = None
        if self._process is not None:
            self._process.kill()

    def forget(self) -> None:
        """Close what a forked process has of it: browsers would wait for one that hangs."""
        self._pages.close()
        if self._process is not None:
            self._close(self._process)

    def _start(self, selector: selectors.BaseSelector) -> None:
        self._started_s = self._now_s()
        try:
            process = spawn(self._module, inherited=self._pages.numbers)
        except OSError as error:
            self._start_again(f"can't be started: {error.strerror or error}")
            return
        assert process.stdin is not None
        assert process.stderr is not None
        self._process, self._ended_fd = process, os.pidfd_open(process.pid)
        os.set_blocking(process.stderr.fileno(), False)
        ended = partial(self._ended, selector, process)
        complains = partial(self._complains, selector, process)
        selector.register(self._ended_fd, selectors.EVENT_READ, ended)
        selector.register(process.stderr, selectors.EVENT_READ, complains)
        with suppress(BrokenPipeError):  # it has ended already
            process.stdin.write(self._line)  # an empty pipe takes more than that at once

    def _ended(self, selector: selectors.BaseSelector, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        if process.stderr in selector.get_map():  # what it said last
            self._complains(selector, process)
        if process.stderr in selector.get_map():  # whom it has started still has the other end
            selector.unregister(process.stderr)
        selector.unregister(self._ended_fd)
        self._close(process)
        self._process = None
        status = process.wait()
        if self._selector is not None:
            self._start_again(f"has ended with {status}")

    def _start_again(self, what: str) -> None:
        now_s = self._now_s()
        wait_s = self._waits.after(now_s - self._started_s)
        logs.warning("the console " + what, again_in_s=wait_s)
        self.due_s = now_s + wait_s

    def _close(self, process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        os.close(self._ended_fd)

    def _complains(
        self, selector: selectors.BaseSelector, process: subprocess.Popen[bytes]
    ) -> None:
        """Have what it says on standard error in our log, by whole lines."""
        assert process.stderr is not None
        if process is not self._process:
            return  # it has ended, and all of it was read
        data = process.stderr.read(READ_BYTES)
        if data == b"":
            selector.unregister(process.stderr)
        *lines, rest = (self._complained + (data or b"")).split(b"\n")
        self._complained = rest[:COMPLAINT_BYTES_MAX]
        if lines:
            text = b"\n".join(lines).decode(errors="replace")
            logs.warning("said by a process of ours", pid=process.pid, text=text)
