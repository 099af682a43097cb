"""What TLS and SASL cost: the same load through two doors of one broker, PLAINTEXT and TLS 1.3.

    python -m bench --only tls --against triglot-tls --against kafka-tls
    python -m bench --only single --against triglot --against triglot-rules

Wanted: produce in 16 KB batches and fetch of 900 KB batches over TLS at most 0.8 of what Apache
Kafka 3.9 needs in the same run; a handshake (P-256) at most 1.5 ms of CPU; 300 handshakes a second
while the p99 of another client stays below 20 ms; a login by SCRAM at most 25 ms of CPU; single
requests with rules at most 5 % dearer.

Estimates, on paper: AES-GCM makes some 2 GB/s of a core, so 0.5 CPU-s/GB; the copies in and out of
the TLS layer as much again, and what the socket costs comes in records of 16 KB: produce 2.8, fetch
1.2. A handshake is a signature and a key exchange, 0.2 ms, and asyncio's share: 0.8 ms. SCRAM: 0.5.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

from bench import frames, librdkafka, machine, raw
from bench.case import Case, Figure
from bench.secured_servers import MECHANISM, PASSWORD, USER, Secured
from tests.support.administrator import SHA_512, Administrator
from tests.support.caller import Caller
from tests.support.secured import ScramClient, authenticate, salted_password, shake

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-tls"
GROUP = "TLS 1.3 beside PLAINTEXT, librdkafka"
VALUE_BYTES = 1000
SMALL, LARGE = 16_384, 900_000
TLS_COST, PLAIN_COST, RATIO = "broker CPU-s/GB over TLS", "plain", "TLS to plain"
FIGURES_OF_BOTH = (TLS_COST, PLAIN_COST, RATIO)
RATE = 300
"""Handshakes a second, and requests a second of the client beside them."""


def over_tls(server: Secured) -> dict[str, Any]:
    """librdkafka's settings."""
    return {
        "bootstrap_servers": f"127.0.0.1:{server.ports['SSL']}",
        "security_protocol": "ssl",
        "ssl_ca_location": str(server.authority.certificate),
    }


def _of_both(tls: float, plain: float) -> dict[str, float]:
    return {TLS_COST: tls, PLAIN_COST: plain, RATIO: tls / plain if plain else 0.0}


class Produce(Case):
    """Batches of 16 KB, acks=1."""

    group = GROUP
    name = "produce, 16 KB batches"
    figures = (Figure(TLS_COST, 2, 2.8), Figure(PLAIN_COST, 2, 1.5), Figure(RATIO, 2, 1.9))

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Secured):
            return {}
        server.create_topic(TOPIC)
        try:
            return _of_both(
                self._cost(server, scale, over_tls(server)), self._cost(server, scale, {})
            )
        finally:
            server.delete_topic(TOPIC)

    def _cost(self, server: Secured, scale: Scale, door: dict[str, Any]) -> float:
        size = scale.produced_bytes_of_large
        full = librdkafka.FULL_BATCHES
        with librdkafka.producers(server, TOPIC, batch_size=SMALL, **full, **door) as (load,):
            start_cpu_s = machine.cpu_seconds(server.pid)
            librdkafka.produce(load, TOPIC, records=size // VALUE_BYTES, value_bytes=VALUE_BYTES)
            return (machine.cpu_seconds(server.pid) - start_cpu_s) / size * 1e9


class Fetch(Case):
    """Batches of 900 KB, read from the start."""

    group = GROUP
    name = "fetch, 900 KB batches"
    figures = (Figure(TLS_COST, 2, 1.2), Figure(PLAIN_COST, 2, 0.4), Figure(RATIO, 2, 3.0))

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Secured):
            return {}
        count = frames.records_in(LARGE, VALUE_BYTES)
        batch = frames.record_batch(count, VALUE_BYTES)
        batches = max(2, scale.fetched_bytes // len(batch))
        request = frames.produce_frame(TOPIC, batch, acks=1)
        server.create_topic(TOPIC)
        try:
            at = frames.produce_error_position(TOPIC)
            raw.blast(server, [request], "-n", str(batches), error_position=at)

            def cost(door: dict[str, Any]) -> float:
                start_cpu_s = machine.cpu_seconds(server.pid)
                librdkafka.consume(server, TOPIC, records=batches * count, **door)
                return (machine.cpu_seconds(server.pid) - start_cpu_s) / len(batch) / batches * 1e9

            return _of_both(cost(over_tls(server)), cost({}))
        finally:
            server.delete_topic(TOPIC)


class Handshakes(Case):
    """Full handshakes, one after the other, and then 300 a second beside a client that asks for
    something 300 times a second. The client of both is this process."""

    group = "Handshakes of TLS 1.3, P-256"
    name = "connections that are closed again"
    CPU, P99, BESIDE = "broker CPU ms", "p99 ms of a client alone", "beside 300 a second"
    figures = (Figure(CPU, 2, 0.8), Figure(P99, 1, 1), Figure(BESIDE, 1, 5))

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Secured):
            return {}
        trusted = ssl.create_default_context(cafile=str(server.authority.certificate))
        count = max(5, int(scale.raw_s * RATE))
        start_cpu_s = machine.cpu_seconds(server.pid)
        for _ in range(count):
            _connect(server, trusted)
        cpu_s = machine.cpu_seconds(server.pid) - start_cpu_s
        alone = _p99_ms(server, count)
        ends = threading.Event()
        beside = threading.Thread(target=_connect_often, args=(server, trusted, ends))
        beside.start()
        try:
            p99 = _p99_ms(server, count)
        finally:
            ends.set()
            beside.join()
        return {self.CPU: cpu_s / count * 1e3, self.P99: alone, self.BESIDE: p99}


def _connect(server: Secured, trusted: ssl.SSLContext) -> None:
    address = ("127.0.0.1", server.ports["SSL"])
    with socket.create_connection(address, timeout=30) as plain:
        trusted.wrap_socket(plain, server_hostname="127.0.0.1").close()


def _connect_often(server: Secured, trusted: ssl.SSLContext, ends: threading.Event) -> None:
    due_s = time.perf_counter()
    while not ends.is_set():
        _connect(server, trusted)
        due_s += 1 / RATE
        time.sleep(max(0.0, due_s - time.perf_counter()))


def _p99_ms(server: Server, count: int) -> float:
    request, took_s = frames.api_versions_frame(), []
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        due_s = time.perf_counter()
        for _ in range(count):
            raw.ask_on(client, request)
            took_s.append(time.perf_counter() - due_s)
            due_s += 1 / RATE
            time.sleep(max(0.0, due_s - time.perf_counter()))
    return sorted(took_s)[int(len(took_s) * 0.99)] * 1e3


class Logins(Case):
    """Connections that authenticate by SCRAM-SHA-512 with 4096 iterations, and are closed."""

    group = "Logins by SCRAM-SHA-512"
    name = "4096 iterations"
    CPU = "broker CPU ms"
    figures = (Figure(CPU, 2, 0.5),)

    def prepare(self, server: Server, scale: Scale) -> None:
        if isinstance(server, Secured):
            salted = salted_password(MECHANISM, PASSWORD, b"salt of " + USER.encode(), 4096)
            with Administrator("127.0.0.1", server.port, timeout_s=30) as admin:
                admin.set_password(USER, SHA_512, salted)

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Secured):
            return {}
        count = max(3, int(scale.raw_s * 100))
        start_cpu_s = machine.cpu_seconds(server.pid)
        for _ in range(count):
            with Caller("127.0.0.1", server.ports["SASL_PLAINTEXT"]) as client:
                scram = ScramClient(MECHANISM, USER, PASSWORD)
                shake(client, MECHANISM)
                challenge = bytes(authenticate(client, scram.first()).auth_bytes)
                if authenticate(client, scram.final(challenge)).error_code:
                    raise RuntimeError(f"{server.name} does not let {USER} in")
        return {self.CPU: (machine.cpu_seconds(server.pid) - start_cpu_s) / count * 1e3}


CASES: tuple[Case, ...] = (Produce(), Fetch(), Handshakes(), Logins())
