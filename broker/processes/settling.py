"""What one process has left of transactions without a stop is settled before several begin.

One process syncs no markers, and finds those that were lost by a look at all partitions
(`broker.coordinator.transactions.settling`); each of several would see its share alone. So the
first of them opens the directory as one process does, lets it settle, and closes it in good order;
then it ends, and is begun again as one of several. Clients wait meanwhile in the queues of the
sockets, which are open. Whatever ends it before that, the next start does it again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker import logs
from broker.assembly import Broker
from broker.background.housekeeping import Housekeeping
from broker.server import Running
from storage.errors import DataDirectoryError

if TYPE_CHECKING:
    from broker.surroundings import Surroundings
    from config import BrokerSettings
    from storage.data_dir import DataDirectory
    from storage.metadata.store import MetadataStore
    from storage.reports import RecoveryReport
    from storage.trusted_time import ClockState

LOOK_EVERY_S = 0.02
MARKERS_WITHIN_S = 10.0
"""Time for markers that the disk refuses at first; they are tried again every second."""


async def settle(
    settings: BrokerSettings,
    loop: asyncio.AbstractEventLoop,
    directory: DataDirectory,
    store: MetadataStore,
    clock_state: ClockState | None,
    surroundings: Surroundings,
    *,
    found: list[RecoveryReport],
) -> None:
    """Settle the transactions of all partitions, and leave the directory as after a clean stop.
    What was `found` in it is said with the rest. Raises DataDirectoryError, OSError."""
    broker = Broker(settings, loop, directory, store, clock_state, surroundings)
    broker.lead()
    opened: asyncio.Future[list[RecoveryReport]] = loop.create_future()
    broker.changes.make(broker.open(), opened.set_result, opened.set_exception)
    reports = found + await opened
    for report in reports:
        logs.warning("found in the data directory", finding=str(report))
    broker.groups.report_torn_commits(reports)
    await _wait_until_settled(broker)
    running = Running(broker, Housekeeping(loop, []), None, None, None)
    if not await running.close():
        raise DataDirectoryError("the directory could not be closed in good order")


async def _wait_until_settled(broker: Broker) -> None:
    """Raises DataDirectoryError where a marker cannot be written."""
    transactions, now_s = broker.transactions.runtime, broker.loop.time
    until_s = now_s() + MARKERS_WITHIN_S
    while not transactions.is_settled:
        if transactions.is_loading or broker.groups.is_loading:  # which takes what it takes
            until_s = now_s() + MARKERS_WITHIN_S
        elif now_s() > until_s:
            raise DataDirectoryError("markers could not be written, as the log says")
        await asyncio.sleep(LOOK_EVERY_S)
