"""Brokers of runs beside each other never meet on a port."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

import pytest

from tests.damage.forked_broker import ForkedBroker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long


def test_a_port_is_kept_from_others_until_its_broker_has_ended(tmp_path: Path) -> None:
    broker = ForkedBroker(tmp_path / "data", tmp_path / "output")

    with socket.socket() as other, pytest.raises(OSError) as refused:  # noqa: PT011
        other.bind(("127.0.0.1", broker.port))
    assert refused.value.errno == errno.EADDRINUSE

    broker.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", broker.port))
