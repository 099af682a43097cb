"""Process 0: it leads the metadata log, and so is the controller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker import clock, logs
from broker.assembly import Broker
from broker.metadata.followers import Followers
from broker.metadata.moves import Moves
from broker.network.forwarding import Forwarding
from broker.partitions.internal_topics import TRANSACTION_TOPIC
from broker.processes.process import Process, PutInOrder
from broker.supervision.line import ALL, GONE, HERE, LED
from broker.surroundings import SURROUNDINGS
from storage.errors import DataDirectoryError
from storage.layout import CLEAN_SHUTDOWN
from storage.metadata.metadata_log import MetadataLogSettings
from storage.metadata.opening import open_metadata
from storage.share import CONTROLLER, LastStop, Share
from storage.trusted_time import read_clock_state

if TYPE_CHECKING:
    from typing import Any

    from broker.metadata.changes import Changes
    from storage.metadata.store import MetadataStore
    from storage.reports import RecoveryReport
    from storage.trusted_time import ClockState


class LeadingProcess(Process):
    """The controller. What it is given of the metadata log (`led`) is what it told before it died,
    and nothing at a start of all."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._followers = Followers(self._neighbours.ids[1:])

    @property
    def _changes(self) -> Changes:
        return self._broker.changes

    async def _begin(self) -> list[RecoveryReport]:
        self._line.listen(self._loop, stop=self._stop.set, told=self._told)
        settings = self._settings
        clock_state = read_clock_state(SURROUNDINGS.files, settings.data_directory)
        store, reports = self._open_metadata(self._shared.processes)
        if not (self._led or self._is_settled(store)):
            store.log.close()
            await self._settle(clock_state)
            raise PutInOrder
        share = Share(0, self._last_stop())
        directory = self._directory(share)
        self._broker = broker = Broker(
            settings,
            self._loop,
            directory,
            store,
            clock_state,
            SURROUNDINGS._replace(
                faulted=Forwarding(self._connect, CONTROLLER).handlers, reserve=self._reserve
            ),
            neighbours=self._neighbours,
        )
        self._require_what_is_served(broker)
        broker.lead(self._shared.credentials, comes_back=bool(self._led))
        self._answer_when_followed(broker)
        await self._listen_to_others()
        assert share.last_stop is not None
        self._line.say(
            LED,
            since=store.led_since,
            was_clean=share.last_stop.was_clean,
            led_alone=share.last_stop.led_alone,
        )
        if not self._led:
            await self._all_follow(broker)
        return reports + await self._opened()

    async def _all_follow(self, broker: Broker) -> None:
        """Wait for the others, so that all open their logs at once: none would be answered while
        one is recovered here."""
        all_follow = asyncio.Event()
        self._followers.all_come()
        self._followers.wait(broker.controller.committed_offset, all_follow.set)
        await all_follow.wait()

    def _open_metadata(self, processes: int) -> tuple[MetadataStore, list[RecoveryReport]]:
        settings = self._settings
        return open_metadata(
            SURROUNDINGS.files,
            settings.data_directory,
            self._shared.identity,
            now_ms=SURROUNDINGS.now_ms,
            settings=MetadataLogSettings(
                settings.metadata_log_segment_bytes, settings.metadata_log_segment_ms
            ),
            processes=processes,
        )

    def _require_what_is_served(self, broker: Broker) -> None:
        """Raises DataDirectoryError for a directory of which several processes can't serve all."""
        broker.dynamic_settings.apply()
        if "listeners" in broker.settings.current.layers.this_broker:
            raise DataDirectoryError(
                "listeners were set while the broker ran, which is for one process: start it "
                "without --processes and delete them (kafka-configs --delete-config listeners)"
            )

    def _is_settled(self, store: MetadataStore) -> bool:
        """Whether no transactions are there that one process has left without a stop."""
        topics = store.image.topics
        was_clean = SURROUNDINGS.files.exists(f"{self._settings.data_directory}/{CLEAN_SHUTDOWN}")
        was_shared = any(
            one.process for topic in topics.values() for one in topic.partitions.values()
        )
        return TRANSACTION_TOPIC not in topics or was_clean or was_shared

    async def _settle(self, clock_state: ClockState | None) -> None:
        """Have them settled. Raises DataDirectoryError."""
        from broker.processes.settling import settle  # few starts need it

        began_s = clock.monotonic_s()
        try:
            store, reports = self._open_metadata(1)
            await settle(
                self._settings,
                self._loop,
                self._directory(None),
                store,
                clock_state,
                SURROUNDINGS._replace(reserve=self._reserve),
                found=reports,
            )
        except (DataDirectoryError, OSError) as error:
            raise DataDirectoryError(
                f"the directory has transactions ({TRANSACTION_TOPIC}), the one process that "
                f"served it did not stop in good order, and they could not be settled ({error}): "
                "start it once without --processes, which settles them, and stop it"
            ) from error
        logs.info(
            "transactions that one process left without a stop are settled",
            seconds=round(clock.monotonic_s() - began_s, 3),
        )

    def _last_stop(self) -> LastStop | None:
        """What the controller found when all began; for one that comes back, a crash."""
        if not self._led:
            return None
        return LastStop(was_clean=False, led_alone=True)

    def _told(self, word: str, number: int) -> None:
        """The controller is told of the others, too."""
        super()._told(word, number)
        node_id = self._shared.settings.node_id + number
        if word == ALL:
            self._broker.directory.checkpoints.all_opened()
        elif word == HERE and number:
            self._followers.came(node_id)
        elif word == GONE:
            self._followers.gone(node_id)
            leader = self._broker.controller
            self._broker.changes.make(leader.store.new_epoch(number), _nothing, _not_begun)

    def _answer_when_followed(self, broker: Broker) -> None:
        leader, followers = broker.controller, self._followers
        leader.observers.heard = followers.followed
        first_id = self._shared.settings.node_id
        broker.parts.moves = Moves(
            leader.store,
            broker.changes,
            lambda number: number == 0 or followers.lives(first_id + number),
        )
        broker.changes.followed = lambda then: followers.wait(leader.committed_offset, then)


def _nothing(_: None) -> None:
    """A new epoch has begun, and all follow."""


def _not_begun(error: Exception) -> None:
    logs.error("a process that died is led in its old epoch", reason=str(error))
