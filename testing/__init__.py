"""Brokers for tests: a real one in a process of its own, or in the test's event loop.

    from triglot.testing import Broker

    with Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        ...
        broker.topic("orders").wait_for(count=3)

With pytest nothing has to be imported: the fixtures `triglot` and `triglot_session` are there once
`triglot[pytest]` is installed. A module is imported when a name of it is first asked for, so that a
test run that uses none of this pays nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testing.broker import Broker as Broker
    from testing.broker import Snapshot as Snapshot
    from testing.errors import BrokerFailed as BrokerFailed
    from testing.groups import Group as Group
    from testing.inline import AsyncBroker as AsyncBroker
    from testing.namespace import Namespace as Namespace
    from testing.proxy import FaultProxy as FaultProxy
    from testing.topics import Record as Record
    from testing.topics import Topic as Topic
    from testing.topics import TopicPartition as TopicPartition

__all__ = [
    "AsyncBroker",
    "Broker",
    "BrokerFailed",
    "FaultProxy",
    "Group",
    "Namespace",
    "Record",
    "Snapshot",
    "Topic",
    "TopicPartition",
]

_MODULES = {
    "AsyncBroker": ".inline",
    "Broker": ".broker",
    "BrokerFailed": ".errors",
    "FaultProxy": ".proxy",
    "Group": ".groups",
    "Namespace": ".namespace",
    "Record": ".topics",
    "Snapshot": ".broker",
    "Topic": ".topics",
    "TopicPartition": ".topics",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module, __package__), name)
