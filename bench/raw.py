"""The raw load: frames made beforehand, sent by the C program `blast`; and single round trips."""

from __future__ import annotations

import json
import socket
import statistics
import struct
import subprocess
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from bench import frames
from bench.programs import program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Server(Protocol):
    """A server under load; `output` is the end of what it printed."""

    name: str
    port: int
    pid: int

    def output(self) -> str: ...


class Blasted(NamedTuple):
    """The counts of `blast` between the edges of the measured time."""

    seconds: float
    cpu_s: float
    answers: int
    errors: int
    retries: int
    bytes_sent: int
    bytes_received: int
    p50_us: int
    p99_us: int
    max_us: int


def blast(
    server: Server,
    requests: Sequence[bytes],
    *options: str,
    error_position: int | Sequence[int],
) -> Blasted:
    """Runs `blast` with these options. Raises if any answer carried an error code. Several
    positions are those of requests that belong together."""
    with tempfile.NamedTemporaryFile(prefix="frames-") as file:
        file.writelines(requests)
        file.flush()
        command = _command(server, file.name, options, error_position)
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if ran.returncode != 0:
        raise RuntimeError(f"blast against {server.name}: {ran.stderr.strip()}\n{server.output()}")
    blasted = Blasted(**json.loads(ran.stdout))
    if blasted.errors:
        raise RuntimeError(f"{server.name} answered {blasted.errors} requests with an error")
    return blasted


@contextmanager
def blasting(
    server: Server,
    requests: Sequence[bytes],
    *options: str,
    error_position: int | Sequence[int],
) -> Iterator[None]:
    """Has `blast` run meanwhile, for a server that is killed under it. It is ended afterwards."""
    with tempfile.NamedTemporaryFile(prefix="frames-") as file:
        file.writelines(requests)
        file.flush()
        command = _command(server, file.name, options, error_position)
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            run.kill()
            run.wait()


def _command(
    server: Server, file: str, options: Sequence[str], error_position: int | Sequence[int]
) -> list[str]:
    positions = [error_position] if isinstance(error_position, int) else error_position
    command = [str(program("blast")), "-p", str(server.port), "-f", file]
    return [*command, "-P", str(server.pid), "-e", ",".join(map(str, positions)), *options]


def ask(port: int, request: bytes, *, timeout_s: float = 10) -> bytes:
    """One round trip on a connection of its own; the answer without its length prefix."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        return ask_on(connection, request)


def ask_on(connection: socket.socket, request: bytes) -> bytes:
    """One round trip; the answer without its length prefix."""
    connection.sendall(request)
    return answer_on(connection)


def answer_on(connection: socket.socket) -> bytes:
    """The next answer to what was sent before, without its length prefix."""
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError(f"closed after {len(data)} of {size} bytes")
        data += piece
    return bytes(data)


class Survey(NamedTuple):
    """The batches at the start of a topic's partition 0, as the load really made them."""

    median_batch_bytes: int
    bytes_per_record: float


def survey(server: Server, topic: str) -> Survey:
    """Reads the first 8 MiB of batches back; the first is left out, because it is a warm-up."""
    sizes: list[int] = []
    counts: list[int] = []
    offset = 0
    while sum(sizes) < 8 << 20:
        request = frames.fetch_frame(topic, offset, max_bytes=4 << 20, wait_ms=10)
        found = frames.batches_in(ask(server.port, request), topic)
        if not found.sizes:
            break
        sizes += found.sizes
        counts += found.counts
        offset += sum(found.counts)
    if len(sizes) > 2:
        del sizes[0], counts[0]
    return Survey(round(statistics.median(sizes)), sum(sizes) / sum(counts))
