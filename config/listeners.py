"""Listeners: where the broker listens and what it tells clients to dial."""

from __future__ import annotations

from typing import NamedTuple

from config.kinds import Kind

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LISTENER_PREFIX = "listener.name."
"""Prefix of the keys of a single listener; its name and a dot follow."""
UNROUTABLE_HOSTS = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    """One address. An empty host means every interface; port 0 lets the system choose."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(text: str) -> Listener:
    """`NAME://host:port` as a Listener; IPv6 hosts stand in brackets. ValueError if it is not."""
    wish = f"NAME://host:port, not {text!r}"
    name, separator, address = text.partition("://")
    host, colon, port_text = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not separator or not colon or not name or (":" in host and not bracketed):
        raise ValueError(wish)
    if not name.replace("_", "").replace("-", "").replace(".", "").isalnum():
        raise ValueError(wish)
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) < 65_536):
        raise ValueError(f"{wish}: the port is a number from 0 to 65535")
    return Listener(name.upper(), host, int(port_text))


def _parse_all(text: str) -> tuple[Listener, ...]:
    if not text:
        raise ValueError("at least one NAME://host:port")
    found = tuple(parse_listener(entry.strip()) for entry in text.split(","))
    seen: set[str] = set()
    for listener in found:
        if listener.name in seen:
            raise ValueError(f"each listener name once, not {listener.name} twice")
        seen.add(listener.name)
    return found


def _format_all(value: tuple[Listener, ...]) -> str:
    return ",".join(map(str, value))


def parse_pairs(text: str) -> dict[str, str]:
    """`name:value` separated by commas. ValueError if it is not."""
    pairs: dict[str, str] = {}
    for entry in text.split(",") if text else ():
        name, colon, value = entry.strip().rpartition(":")
        if not colon or not name.strip() or not value.strip():
            raise ValueError(f"a list of name:value, not {entry.strip()!r}")
        if name.strip() in pairs:
            raise ValueError(f"each name once, not {name.strip()} twice")
        pairs[name.strip()] = value.strip()
    return pairs


def _parse_protocols(text: str) -> tuple[tuple[str, str], ...]:
    pairs = {name.upper(): value.upper() for name, value in parse_pairs(text).items()}
    for protocol in pairs.values():
        if protocol not in PROTOCOLS:
            raise ValueError(f"NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}, not {protocol}")
    return tuple(pairs.items())


def _parse_counts(text: str) -> tuple[tuple[str, int], ...]:
    counts = []
    for name, value in parse_pairs(text).items():
        if not (value.isascii() and value.isdigit()):
            raise ValueError(f"a list of address:count, not {name}:{value}")
        counts.append((name, int(value)))
    return tuple(counts)


def format_pairs(value: tuple[tuple[str, object], ...]) -> str:
    """The text of pairs."""
    return ",".join(f"{name}:{one}" for name, one in value)


# Texts with a grammar of their own; to Kafka's tools they are strings.
listener_list: Kind[tuple[Listener, ...]] = Kind("string", 2, _parse_all, _format_all)
protocol_map: Kind[tuple[tuple[str, str], ...]] = Kind("string", 2, _parse_protocols, format_pairs)
counts_by_address: Kind[tuple[tuple[str, int], ...]] = Kind(
    "string", 2, _parse_counts, format_pairs
)
