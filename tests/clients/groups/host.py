"""A running program with members of groups in it.

Its words are those of tests/clients/python/group_host.py.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from typing import IO, TYPE_CHECKING, Any

from tests.clients.drivers.driver import CALL_TIMEOUT_S
from tests.clients.groups.group_clients import host_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.clients.groups.group_clients import GroupClient

    #: What a program said of one of its members.
    Event = dict[str, Any]


class HostFailed(AssertionError):
    """The program answered an error, or nothing."""


class Host:
    """Events of its members are passed on as they come, on a thread of this object."""

    def __init__(self, client: GroupClient, folder: Path) -> None:
        command, environ = host_command(client)
        self.client = client
        self.members: set[str] = set()
        self._listeners: dict[str, Callable[[Event], None]] = {}
        self._calling = threading.Lock()
        self._errors = folder / f"stderr-{client.key}-{os.urandom(4).hex()}"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )
        assert self._process.stdout is not None
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(
            target=self._drain, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()

    def join(self, member: str, listener: Callable[[Event], None], **words: object) -> None:
        """A member more, whose events go to the listener."""
        self._listeners[member] = listener
        self.members.add(member)
        self.call("join", member=member, **words)

    def call(self, name: str, **words: object) -> Any:
        """What the command answers. Raises `HostFailed`."""
        with self._calling:
            self.send(name, **words)
            return self.answer()

    def send(self, name: str, **words: object) -> None:
        assert self._process.stdin is not None
        line = " ".join([name, *(f"{key}={value}" for key, value in words.items())])
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Of the oldest command whose answer was not taken."""
        try:
            found = self._answers.get(timeout=CALL_TIMEOUT_S)
        except queue.Empty:
            raise HostFailed(f"{self.client.key} does not answer; {self.errors()}") from None
        if "ok" not in found:
            raise HostFailed(f"{self.client.key}: {found.get('error')}; {self.errors()}")
        return found["ok"]

    def errors(self) -> str:
        """The end of what it wrote to standard error."""
        return f"its errors: {self._errors.read_text(errors='replace')[-2000:]}"

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would; also when it is paused."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _drain(self, lines: IO[str]) -> None:
        for line in lines:
            found = json.loads(line)
            if "event" in found:
                self._listeners[found["member"]](found)
            else:
                self._answers.put(found)
        self._answers.put({"error": "it has ended"})
