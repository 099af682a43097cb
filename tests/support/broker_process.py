"""Our broker in a process of its own, by the command that a user types.

    with BrokerProcess(tmp_path / "data") as broker:
        KafkaProducer(bootstrap_servers=broker.bootstrap)

The command runs in the checkout, whatever the current folder of the tests is. In a test run its
process is forked from one that has imported the broker (`forked_commands`).
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from config.platforms import PORTABLE_VARIABLE
from tests.support import forked_commands
from tests.support.server_process import RunningProcess, ServerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHECKOUT = Path(__file__).resolve().parents[2]


class BrokerProcess(ServerProcess):
    """`python -m tools serve` on a free loopback port, or on the settings' `listeners`. The
    environment's TEST_PROCESSES has it serve by so many processes."""

    READY_LINE = re.compile(r"listening on 127\.0\.0\.1:(?P<port>\d+)")
    CONTROL = re.compile(r"by the control port (\S+)")

    def __init__(
        self,
        data: Path,
        *,
        settings: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
        open_files: int | None = None,
        may_fork: bool = True,
    ) -> None:
        """`open_files` is how many descriptors it may have; None leaves it at ours. `may_fork` is
        for all that do not look at what an interpreter of its own shows of itself."""
        processes = os.environ.get("TEST_PROCESSES", "1")
        several = {} if processes == "1" else {"broker.processes": processes}
        super().__init__(data, settings={**several, **(settings or {})})
        self.arguments = arguments
        self.open_files = open_files
        self._may_fork = may_fork

    def _launch(self) -> RunningProcess:
        processes = int(self.settings.get("broker.processes", "1"))
        if processes > 1 and self.port == 0:
            self.port = free_port(processes)  # of 0 each would have another after every start
        command = [sys.executable, "-m", "tools", "serve", "--data", str(self.data.resolve())]
        if "listeners" not in self.settings:
            command += ["--listen", self.bootstrap]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        if self.open_files is not None:
            limit = f'ulimit -n {self.open_files}; exec "$0" "$@"'
            command = ["/bin/sh", "-c", limit, *command]
        return self._started([*command, *self.arguments])

    def _started(self, command: Sequence[str]) -> RunningProcess:
        environ = without_settings()
        forked = forked_commands.start(command, CHECKOUT, environ) if self._may_fork else None
        return RunningProcess(
            command, cwd=CHECKOUT, environ=environ, ready_line=self.READY_LINE, process=forked
        )

    def kill(self) -> None:
        """End it by SIGKILL, and with it the processes that serve its directory."""
        if self.processes > 1:
            os.kill(self.pid, signal.SIGSTOP)  # or it would begin them anew
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
            for pid in map(int, children.split()):
                ended = os.pidfd_open(pid)
                os.kill(pid, signal.SIGKILL)
                select.select([ended], [], [])  # it has the ports and the lock until then
                os.close(ended)
        super().kill()

    @property
    def processes(self) -> int:
        """How many serve it."""
        return int(self.settings.get("broker.processes", "1"))

    @property
    def control(self) -> str:
        """host:port of the control port, of a broker with the argument `--testing`."""
        found = self.CONTROL.search(self.output())
        assert found is not None, "it was started without --testing"
        return found[1]

    def _ready(self, line: re.Match[str]) -> None:
        self.port = int(line["port"])


def without_settings() -> dict[str, str]:
    """The environment less what a broker would take for its settings; tests have some too."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("TRIGLOT_") or key == PORTABLE_VARIABLE
    }
