"""`triglot tap listen` in a process of its own, in front of a server that runs.

with TapProcess(broker.bootstrap, arguments=("--json",)) as tap:
    KafkaProducer(bootstrap_servers=tap.bootstrap)
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from tests.support.server_process import RunningProcess


class TapProcess(BrokerProcess):
    """`python -m tools tap listen --json` on a free loopback port."""

    READY_LINE = re.compile(r'"what": "ready".*"port": (?P<port>\d+)')

    def __init__(self, behind: str, *, arguments: tuple[str, ...] = ()) -> None:
        """`behind` is host:port of the broker."""
        super().__init__(Path(), arguments=arguments)
        self._behind = behind

    def _launch(self) -> RunningProcess:
        command = [sys.executable, "-m", "tools", "tap", "listen", "--in-front-of", self._behind]
        return self._started([*command, "--listen", self.bootstrap, "--json", *self.arguments])

    def told(self) -> list[dict[str, Any]]:
        """The entries that it has printed."""
        return [json.loads(line) for line in self.output().splitlines()[1:]]
