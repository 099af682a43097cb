"""Which listeners are said to be open to everybody."""

from __future__ import annotations

from typing import Any

import pytest

from broker import logs
from broker.network.secured import warn_of_open_listeners
from config import load
from config.jaas import PLAIN_LOGIN_MODULE

EVERY = "listener.security.protocol.map"
OTHERS = {
    "ssl.keystore.location": "/keys/broker.pem",
    "ssl.truststore.location": "/keys/trusted.pem",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.c.plain.sasl.jaas.config": f'{PLAIN_LOGIN_MODULE} required user_a="b";',
}


@pytest.mark.parametrize(
    ("listeners", "open_ones"),
    [
        ("A://127.0.0.1:1,B://localhost:2,C://127.0.0.7:3", []),
        ("A://[::1]:1", []),
        ("A://:1", ["A://:1"]),
        ("A://0.0.0.0:1,C://0.0.0.0:3", ["A://0.0.0.0:1"]),
        ("A://broker.example:1", ["A://broker.example:1"]),
        ("A://[::]:1,B://:2", ["A://[::]:1", "B://:2"]),
        ("D://:4", []),
    ],
)
def test_a_listener_for_others_that_asks_nobody_who_he_is_is_named(
    monkeypatch: pytest.MonkeyPatch, listeners: str, open_ones: list[str]
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(logs, "warning", lambda event, **facts: said.append(facts["listener"]))
    settings = load(
        overrides={
            "listeners": listeners,
            EVERY: "A:PLAINTEXT,B:SSL,C:SASL_PLAINTEXT,D:SSL",
            "listener.name.d.ssl.client.auth": "required",
            **OTHERS,
        }
    )

    warn_of_open_listeners(settings, settings.served_listeners)

    assert said == open_ones
