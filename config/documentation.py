"""The page about all keys and the sample file, made of the declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.accepted_cluster import CLUSTER_KEYS
from config.accepted_security import SECURITY_KEYS
from config.accepted_service import SERVICE_KEYS
from config.broker_authorization import AuthorizationSettings
from config.broker_cleaner import CleanerSettings
from config.broker_group import GroupSettings
from config.broker_log import LogSettings
from config.broker_metadata import MetadataSettings
from config.broker_network import NetworkSettings
from config.broker_node import NodeSettings
from config.describe import documentation_of
from config.listener_security import ListenerSecurity
from config.not_yet import why_not_yet
from config.topic import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from config.declare import Key

SECTIONS = (
    ("The node", NodeSettings.KEYS.values()),
    ("The metadata log", MetadataSettings.KEYS.values()),
    ("Listeners, connections, requests", NetworkSettings.KEYS.values()),
    ("Access", AuthorizationSettings.KEYS.values()),
    ("Topics and their logs", LogSettings.KEYS.values()),
    ("Compaction", CleanerSettings.KEYS.values()),
    ("Groups, offsets, transactions", GroupSettings.KEYS.values()),
    ("TLS and SASL, of all listeners or of one", ListenerSecurity.KEYS.values()),
)
WITHOUT_EFFECT = (
    ("Other nodes, ZooKeeper, tiered storage", CLUSTER_KEYS),
    ("Threads, buffers, plug-ins", SERVICE_KEYS),
    ("TLS and SASL as a client, tokens, classes of Java", SECURITY_KEYS),
)

INTRODUCTION = """\
# Configuration

Every setting of the broker and of topics: its default, what it does, and whether it changes
while the broker runs. `python -m config docs` makes this page of the declarations in `config/`.

The keys are those of Apache Kafka 3.9: a `server.properties` written for Kafka starts
triglot too. Every key of Kafka is known; those that mean nothing here are accepted without
effect, and this page says why. A key that nobody knows, or a value that cannot be, stops the
start with the place it came from and the nearest known key.

A value comes from the last of these that gives one:

1. the default,
2. the properties file,
3. the environment: the key in capitals, dots as underscores, after `TRIGLOT_`
   (`log.dirs` is `TRIGLOT_LOG_DIRS`),
4. `--set key=value` on the command line,
5. for keys marked *at any time*, what AlterConfigs set for all brokers, then for this one.

A topic's own setting holds over the broker's key it falls back to. Keys marked *not yet* are
read, checked and shown, but the part of the broker they are for does not exist yet.

The file is read as Java reads it: ISO 8859-1, `#` and `!` begin a comment, `=`, `:` or a blank
ends the key, a backslash at the end continues a line, `\\u00e4` is a character, and of two lines
with one key the last holds. All that is wrong in it is reported at once.

No two keys have the same environment variable, so none is ambiguous. An unknown variable
that begins with `TRIGLOT_` stops the start, with one exception: the variables Kubernetes and
Docker make for a service named `triglot` (`TRIGLOT_SERVICE_HOST`, `TRIGLOT_PORT_9092_TCP_ADDR`)
are not looked at. `TRIGLOT_PORTABLE=1` is no key: it has a broker do as on systems
[other than Linux](platforms.md).

Keys that contain a name of yours have no variable, because an underscore
could be part of that name; give them in the file or with `--set`. These are the keys of one
listener (`listener.name.NAME.KEY`, with an effect for those of TLS and SASL and for
`max.connections` and `max.connection.creation.rate`) and of remote storage plug-ins
(`rsm.config.*`, `rlmm.config.*`).

Times and sizes are plain numbers in the unit the key's name ends with, as in Kafka.
"""

DIFFERENCES = """\
## Defaults that are not Kafka's

| key | default here | why |
| --- | --- | --- |
"""

UNUSED_INTRODUCTION = """\
## Accepted without effect

Kafka knows these keys, and so does triglot; setting one changes nothing. Values are still
checked for their type.
"""


def page() -> str:
    """The text of docs/config.md."""
    parts = [INTRODUCTION, "".join((DIFFERENCES, *_difference_rows()))]
    head = "| key | default | type | effect | note |\n| --- | --- | --- | --- | --- |\n"
    for title, keys in SECTIONS:
        parts.append("".join((f"## {title}\n\n", head, *(_row(key) for key in keys))))
    topic = "".join(_row(key, "at any time") for key in TopicSettings.KEYS.values())
    parts.append(f"## Topics: settings of one topic\n\n{head}{topic}")
    parts.append(UNUSED_INTRODUCTION)
    for title, unused in WITHOUT_EFFECT:
        rows = "".join(
            f"| `{key.name}` | {_default(key)} | {key.kind.name} | {key.unused} |\n"
            for key in sorted(unused, key=lambda key: key.name)
        )
        parts.append(
            f"### {title}\n\n| key | default | type | why |\n| --- | --- | --- | --- |\n{rows}"
        )
    return "\n".join(parts)


def _difference_rows() -> Iterator[str]:
    for _, keys in SECTIONS:
        for key in keys:
            if key.default_note:
                yield f"| `{key.name}` | {_default(key)} | {key.default_note} |\n"


def _row(key: Key, effect: str = "") -> str:
    if not effect:
        effect = "at any time" if key.dynamic else "at start"
    if key.unused:
        effect = "none"
    elif why_not_yet(key):
        effect = "not yet"
    note = [documentation_of(key)]
    if key.check is not None:
        note.append(f"Valid: {key.check.wish}.")
    if key.broker:
        note.append("Falls back to " + ", ".join(f"`{name}`" for name in key.broker) + ".")
    if key.since == "triglot":
        note.append("Not a key of Kafka.")
    else:
        note.append(f"Kafka {key.since}.")
    return f"| `{key.name}` | {_default(key)} | {key.kind.name} | {effect} | {' '.join(note)} |\n"


def _default(key: Key) -> str:
    text = key.format(key.default)
    if text is None:
        return "-"
    return f"`{text}`" if text else "empty"


SAMPLE_INTRODUCTION = """\
# Settings of a triglot broker: every key with an effect, at its default.
# Made by `python -m config sample`; docs/config.md explains how a file is read.
#
# Take away the # in front of a key to set it.
"""


def sample() -> str:
    """The text of examples/server.properties: every key with an effect, commented out."""
    parts = [SAMPLE_INTRODUCTION]
    for title, keys in SECTIONS:
        entries = "\n".join(_sample_entry(key) for key in keys if not (key.unused or key.internal))
        parts.append(f"\n# {title}\n# {'-' * len(title)}\n\n{entries}")
    return "".join(parts)


def _sample_entry(key: Key) -> str:
    lines = "".join(f"# {line}\n" for line in _wrapped(key.doc, 96))
    text = key.format(key.default)
    return f"{lines}#{key.name}={'' if text is None else text}\n"


def _wrapped(text: str, width: int) -> Iterable[str]:
    from textwrap import wrap

    return wrap(text, width)
