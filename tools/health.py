"""`triglot health`: whether a broker answers, for containers and scripts.

It is called every few seconds, so that it does without the client and its imports.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.arguments import refuse

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add `health` to the command line's."""
    health = commands.add_parser(
        "health",
        help="ask a running broker for its API versions; exit 0 if it answers",
        description="Connects, asks for the API versions and exits 0 if they come back in time.",
    )
    health.set_defaults(run=run_health)
    health.add_argument("--host", default="127.0.0.1")
    health.add_argument("--port", type=int, default=9092)
    health.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS")


def run_health(arguments: argparse.Namespace) -> int:
    """Ask for the API versions; 0 if they come in time."""
    import socket
    import struct

    request = struct.pack(">ihhih6s", 16, 18, 0, 1, 6, b"health")
    try:
        with socket.create_connection(
            (arguments.host, arguments.port), timeout=arguments.timeout
        ) as connection:
            connection.sendall(request)
            head = b""
            while len(head) < 10:
                piece = connection.recv(4096)
                if not piece:
                    return refuse("the broker closed the connection", code=1)
                head += piece
    except OSError as error:
        return refuse(f"no answer from {arguments.host}:{arguments.port}: {error}", code=1)
    size, correlation_id, error_code = struct.unpack_from(">iih", head)
    if size < 6 or correlation_id != 1 or error_code != 0:
        return refuse("what answers there does not speak the Kafka protocol", code=1)
    print("healthy")
    return 0
