"""Notifications to the service manager that started the broker (systemd, Type=notify).

The protocol is that of sd_notify(3): lines of NAME=VALUE in one datagram to the Unix socket that
the environment variable NOTIFY_SOCKET names; a name that begins with '@' is one of Linux's abstract
names. Without the variable nothing is sent.
"""

from __future__ import annotations

import os
import sys


def watchdog_period_s() -> float | None:
    """Seconds between two signs of life: half of what the manager waits for one before it starts
    the broker anew (WatchdogSec=); None where it waits for none."""
    wait_us = os.environ.get("WATCHDOG_USEC", "")
    of_us = os.environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
    return int(wait_us) / 2_000_000 if of_us and wait_us.isdigit() and int(wait_us) else None


def tell_alive() -> None:
    """Whoever calls this from the loop shows that it turns."""
    notify(WATCHDOG="1")


def notify(**states: str) -> None:
    """Send states such as READY="1" or STATUS="...". One that cannot be sent is only logged: the
    manager then acts on its own time-out."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if sys.platform == "win32" or not address:
        return
    import socket  # asyncio has imported it; a broker that nobody manages does not get here

    if address.startswith("@"):
        address = "\0" + address[1:]
    message = "\n".join(f"{name}={value}" for name, value in states.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect(address)
            manager.sendall(message.encode())
    except OSError as error:
        from broker import logs

        logs.warning("the service manager was not told", states=message, reason=str(error))
