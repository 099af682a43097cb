"""The settings of a test's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.layout import META_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OF_TESTS = {
    "disk.reserve.bytes": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Of every broker of a test, unless it says otherwise: more would take time and room, and show
nothing. Topics that a `directory` holds stay as they are."""


SETTINGS = "settings"
"""Where a wrong setting comes from, in the line that says so."""


def texts(settings: Mapping[str, object] | None) -> dict[str, str]:
    """Settings as a properties file has them: `False` is "false"."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (settings or {}).items()
    }


CLIENT_ID = "triglot-testing"
"""Of the client by which a test asks a broker what is in it."""


def as_of(as_version: str | None) -> dict[str, str]:
    """The settings by which a broker answers as another release, but for those who ask it what is
    in it: a test of an old client wants to see its records."""
    if as_version is None:
        return {}
    from config.formats import NAMES  # most brokers are of today

    return {"as.version": as_version, "as.version.client.ids": f"{CLIENT_ID}:{list(NAMES)[-1]}"}


def of_broker(given: Mapping[str, str], data: Path, address: str) -> dict[str, str]:
    """All settings of a broker with this data; `given` ones hold over what is taken from that."""
    listeners = {"listeners": f"PLAINTEXT://{address}"}
    return listeners | _of_data(data) | dict(given) | {"log.dirs": str(data)}


def _of_data(data: Path) -> dict[str, str]:
    """The node id that a data directory was written under, if it says one."""
    file = data / META_PROPERTIES
    if not file.exists():
        return {}
    from storage.errors import MalformedFile  # most brokers begin with nothing
    from storage.identity import MetaProperties

    try:
        identity = MetaProperties.decode(file.read_bytes(), str(file))
    except MalformedFile:
        return {}  # the broker will say what is wrong with it
    return {"node.id": str(identity.node_id)}
