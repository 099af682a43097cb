"""Configuration: one declaration per key, and everything else follows from it.

`load` reads what a broker starts with; `TopicSettings.of` says what holds for a topic. The
declarations are in `broker_*.py`, `topic.py` and, for keys without effect, `accepted_*.py`;
`describe.py` makes the answers of DescribeConfigs of them, `documentation.py` the page.
"""

from __future__ import annotations

from config.broker import BrokerSettings
from config.errors import ConfigError
from config.listeners import Listener
from config.sources import load
from config.topic import TopicSettings, is_list

__all__ = [
    "BrokerSettings",
    "ConfigError",
    "Listener",
    "TopicSettings",
    "is_list",
    "load",
]
