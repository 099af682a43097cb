"""Principals: in whose name a connection acts."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """A type, which is `User` for all that can connect, and a name; written `User:name`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Whoever connects to a listener that asks for no authentication, as Kafka names it."""

PROCESS = Principal("Process", "of the same data directory")
"""Of several that serve one. No client is of this kind, and nothing is denied to it."""


def parse_principal(text: str) -> Principal:
    """`Type:name` as a Principal. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"a principal as Type:name, not {text!r}")
    return Principal(kind, name)
