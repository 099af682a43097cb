"""Members of groups in aiokafka: tasks of one loop, which runs on a thread."""

from __future__ import annotations

import asyncio
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

import aiokafka
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from tests.clients.python.group_host import COMMIT_TRIES, REST_S, Committed, Notes, Words, serve

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

#: For one call.
TIMEOUT_S = 20.0


class TaskMember(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Aiokafka rebalances while its user works, so its listener waits until that is done."""

    def __init__(self, words: Words, notes: Notes) -> None:
        self._words = words
        self._notes = notes
        self._orders: asyncio.Queue[str] = asyncio.Queue()
        self._working = asyncio.Lock()

    def order(self, name: str) -> None:
        LOOP.call_soon_threadsafe(self._orders.put_nowait, name)

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        numbers = {partition.partition for partition in revoked}
        async with self._working:
            uncommitted = self._notes.uncommitted.items()
            await self._commit({number: at for number, at in uncommitted if number in numbers})
            self._notes.gave(numbers)

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._notes.gained(partition.partition for partition in assigned)

    async def run(self) -> None:
        words = self._words
        settings: dict[str, Any] = {}
        if "assignor" in words:
            assignors = import_module("aiokafka.coordinator.assignors.range")
            settings["partition_assignment_strategy"] = [getattr(assignors, words["assignor"])]
        self._consumer = consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=words["bootstrap"],
            group_id=words["group"],
            group_instance_id=words.get("instance"),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=int(words["session_ms"]),
            heartbeat_interval_ms=int(words["heartbeat_ms"]),
            **settings,
        )
        consumer.subscribe([words["topic"]], listener=self)
        try:
            await consumer.start()
            while await self._obey():
                # It returns no records during a rebalance, but waits for the end of it.
                found = await self._consumer.getmany(timeout_ms=100)
                async with self._working:
                    self._read(found)
                    await self._commit(dict(self._notes.uncommitted))
            for _ in range(COMMIT_TRIES):
                await self._commit(dict(self._notes.uncommitted))
            await consumer.stop()
        except Exception as error:
            self._notes.event("failed", why=f"{type(error).__name__}: {error}")
        else:
            self._notes.event("left")

    def _read(self, found: dict[Any, list[Any]]) -> None:
        for partition, messages in found.items():
            values = [message.value.decode() for message in messages]
            self._notes.read(partition.partition, messages[0].offset, values)

    async def _obey(self) -> bool:
        # A rebalance takes from the notes meanwhile; what was held is what counts.
        held: dict[int, int] | None = None
        while held is not None or not self._orders.empty():
            order = await self._orders.get()
            if order == "leave":
                return False
            if order == "hold":
                held = dict(self._notes.last)
                self._notes.event("held", offsets=held)
            elif order == "commit":
                await self._commit(held or {})
            else:
                held = None
        return True

    async def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        try:
            await self._consumer.commit(positions(self._words["topic"], offsets, ""))
        except Exception as error:
            self._notes.refused(offsets, error)
            await asyncio.sleep(REST_S)
        else:
            self._notes.committed(offsets)


def positions(topic: str, offsets: dict[int, int], metadata: str) -> dict[Any, Any]:
    return {
        TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata)
        for partition, offset in offsets.items()
    }


async def with_consumer(words: Words, partitions: Iterable[int], work: Any) -> Any:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=words["bootstrap"], group_id=words["group"], enable_auto_commit=False
    )
    consumer.assign([TopicPartition(words["topic"], number) for number in partitions])
    await consumer.start()
    try:
        return await work(consumer)
    finally:
        await consumer.stop()


def on_the_loop(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, LOOP).result(TIMEOUT_S)


def join(words: Words, notes: Notes) -> TaskMember:
    async def begin() -> TaskMember:
        member = TaskMember(words, notes)
        TASKS.add(asyncio.create_task(member.run()))
        return member

    member: TaskMember = on_the_loop(begin())
    return member


def put(words: Words, offsets: dict[int, int]) -> None:
    wanted = positions(words["topic"], offsets, words["metadata"])
    on_the_loop(with_consumer(words, offsets, lambda consumer: consumer.commit(wanted)))


def get(words: Words, partitions: list[int]) -> list[Committed]:
    async def committed(consumer: Any) -> list[Committed]:
        found: list[Committed] = []
        for number in partitions:
            offset = await consumer.committed(TopicPartition(words["topic"], number))
            found.append((number, -1 if offset is None else offset, None))
        return found

    answer: list[Committed] = on_the_loop(with_consumer(words, partitions, committed))
    return answer


if __name__ == "__main__":
    LOOP = asyncio.new_event_loop()
    TASKS: set[asyncio.Task[None]] = set()
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    serve(join, put, get)
