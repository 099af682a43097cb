"""What a process that starts brokers is asked to do, one JSON object a line:

    {"do": "start", "settings": {...}, "log": FILE, "bytes_max": N or null, "mark": FOLDER or null}
                                                       answered by the broker (`testing.serving`)
    {"do": "prepare", ... as with "start"}             begin with this start, as far as it goes
                                                       before it is asked for; no answer
    {"do": "own", "folder": FOLDER}                    to be removed at the end; no answer
    {"do": "kill", "pid": N}                           kill it; no answer
    {"do": "remove", "folder": FOLDER}                 remove it; no answer
    {"do": "stop", "pid": N}                           answered {} once it is told
    {"do": "pause", "pid": N}                          answered {} when it does nothing any more
    {"do": "resume", "pid": N}                         answered {} when it goes on
    {"do": "wait", "pid": N}                           answered {"exit_code": M} when it has ended

It ends when there are no more, which is when the test run has ended, however that was.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import socket

Request = dict[str, Any]

READ_BYTES = 1 << 16


class Start(NamedTuple):
    """What a broker's process is started with.

    `log` is the file that it logs to, `bytes_max` what its data directory takes, None for what the
    disk does. With a `mark` its data directory begins as a copy of this one.
    """

    settings: dict[str, str]
    log: str
    bytes_max: int | None
    mark: str | None

    @property
    def data(self) -> str:
        """The data directory."""
        return self.settings["log.dirs"]


class RequestServer:
    """Does one request after the other. A kind of it has a method for each: `_start`, ..."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._unread = b""
        self._folders: list[str] = []

    def run(self) -> None:
        """Do what is asked, and at the end leave neither a broker nor its data."""
        while (request := self._next()) is not None:
            getattr(self, f"_{request.pop('do')}")(**request)
        self._end_all()
        for folder in self._folders:
            remove(folder)

    def _end_all(self) -> None:
        """Kill every broker."""
        raise NotImplementedError

    def _next(self) -> Request | None:
        while b"\n" not in self._unread:
            data = self._receive()
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        request: Request = json.loads(line)
        return request

    def _receive(self) -> bytes:
        try:
            return self._requests.recv(READ_BYTES)
        except ConnectionError:  # as Windows tells of an end that was not announced
            return b""

    def _answer(self, **answer: object) -> None:
        self._requests.sendall(json.dumps(answer).encode() + b"\n")

    def _own(self, folder: str) -> None:
        self._folders.append(folder)

    def _remove(self, folder: str) -> None:
        remove(folder)


def remove(folder: str) -> None:
    """Remove a folder, if it is there."""
    import shutil  # of no use before the first broker is gone

    shutil.rmtree(folder, ignore_errors=True)
