"""Starts of brokers that nobody uses, so that those of tests have less to do."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from typing import TYPE_CHECKING

from broker import logs
from broker.event_loop import new_event_loop
from broker.faults.injection import FaultInjection
from broker.server import start
from config import load
from storage.layout import CLEAN_SHUTDOWN, CLEAN_STATE
from storage.unsynced_filesystem import UnsyncedFilesystem
from testing.first_requests import after_restart, at_first
from testing.settings import OF_TESTS
from testing.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable


def warm_up() -> None:
    """Do here what brokers of tests do first, twice over the same data, the second time as after a
    crash, and keep the collector away from what is there then: all of them begin with what was
    imported and compiled for it."""
    logs.warm_up()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory(prefix="triglot-") as folder:
        _run_until_crash(folder)
        _run_once(folder, after_restart)
    gc.collect()
    gc.freeze()


def _run_until_crash(folder: str) -> None:
    """Leave there what the first requests leave of a broker that crashes then."""
    _run_once(folder, at_first)
    for name in (CLEAN_SHUTDOWN, CLEAN_STATE):
        UnsyncedFilesystem().remove(f"{folder}/{name}")


def _run_once(folder: str, ask: Callable[[str], None]) -> None:
    """Run a broker while it is asked something, in a loop and threads that are gone then."""
    loop = new_event_loop()
    try:
        loop.run_until_complete(_ask(loop, folder, ask))
    finally:
        loop.close()


async def _ask(loop: asyncio.AbstractEventLoop, folder: str, ask: Callable[[str], None]) -> None:
    settings = load(
        overrides={**OF_TESTS, "log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:0"}
    )
    running = await start(settings, loop, surroundings(folder, None), testing=FaultInjection())
    await asyncio.to_thread(ask, f"{running.host}:{running.port}")
    await running.stop()
    await loop.shutdown_default_executor()  # a process with threads is not to be forked
