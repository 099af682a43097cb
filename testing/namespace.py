"""A part of a broker that several tests share: names that no other test uses."""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING

from testing.contents import Contents

if TYPE_CHECKING:
    from client.cluster import Cluster
    from testing.broker import Broker
    from testing.control import Control

NAME_CHARACTERS_MAX = 60
"""Of a test's name in the names of its topics, which have 249 in Kafka."""
_numbers = count(1)


class Namespace(Contents):
    """The topics and groups of one test on a shared broker.

    Its clients take their names from `name`, as in `subscribe([triglot_session.name("orders")])`.
    """

    def __init__(self, broker: Broker, test: str) -> None:
        self.broker = broker
        cleaned = re.sub(r"[^a-zA-Z0-9]+", "_", test)[:NAME_CHARACTERS_MAX].strip("_")
        self.prefix = f"{cleaned}_{next(_numbers)}."

    @property
    def bootstrap(self) -> str:
        """What clients take as bootstrap servers."""
        return self.broker.bootstrap

    @property
    def cluster(self) -> Cluster:
        """The client of the shared broker."""
        return self.broker.cluster

    @property
    def control(self) -> Control:
        """That of the shared broker, and so of all tests that share it."""
        return self.broker.control
