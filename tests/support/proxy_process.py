"""`triglot faults` in a process of its own, in front of a server that runs.

with ProxyProcess(kafka.bootstrap) as proxy:
    faults = Faults(Control.at(proxy.control))
    KafkaProducer(bootstrap_servers=proxy.bootstrap)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from tests.support.server_process import RunningProcess


class ProxyProcess(BrokerProcess):
    """`python -m tools faults` on a free loopback port, with a control port."""

    def __init__(self, behind: str, *, arguments: tuple[str, ...] = ()) -> None:
        """`behind` is host:port of the broker; `arguments` in place of `--testing`."""
        super().__init__(Path(), arguments=arguments or ("--testing", "127.0.0.1:0"))
        self._behind = behind

    def _launch(self) -> RunningProcess:
        command = [sys.executable, "-m", "tools", "faults", "--in-front-of", self._behind]
        return self._started([*command, "--listen", self.bootstrap, *self.arguments])
