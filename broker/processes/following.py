"""The processes but the first: they follow its metadata log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.assembly import Broker
from broker.metadata.changes import Changes
from broker.metadata.followed_controller import FollowedController
from broker.metadata.follower import MetadataFollower
from broker.metadata.following.machine import ObserverMachine
from broker.network.forwarding import Forwarding
from broker.processes.process import Process, not_followed
from broker.surroundings import SURROUNDINGS
from broker.workers import Worker
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.identity import uuid_of
from storage.metadata.image_topics import FollowedTopics
from storage.share import LastStop, Share

if TYPE_CHECKING:
    from typing import Any

    from protocol.schema import Message
    from storage.metadata.delta import Delta
    from storage.reports import RecoveryReport

CREATE_WITHIN_MS = 30_000


class FollowingProcess(Process):
    """One that follows the controller."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._following: asyncio.Task[None]
        # Not that of the changes that clients ask for: one of them may wait for this.
        self._follows = Changes(self._loop, Worker(self._loop, "follow"))

    @property
    def _changes(self) -> Changes:
        return self._follows

    async def _wait_for_the_stop(self) -> None:
        await self._before_the_stop(self._following)

    async def _begin(self) -> list[RecoveryReport]:
        self._line.listen(self._loop, stop=self._stop.set, told=self._told)
        identity, settings = self._shared.identity, self._settings
        opened: asyncio.Future[list[RecoveryReport]] = self._loop.create_future()

        async def caught_up() -> None:
            opened.set_result(await self._open_what_is_led(follower))

        follower = MetadataFollower(
            ObserverMachine(
                cluster_id=identity.cluster_id,
                replica_id=settings.node_id,
                directory_id=uuid_of(identity.directory_id),
            ),
            self._connect,
            follow=self._parts_follow,
            caught_up=caught_up,
        )
        self._following = self._loop.create_task(follower.run())
        await asyncio.wait((self._following, opened), return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            self._following.result()  # raises what has ended it
        return opened.result()

    async def _open_what_is_led(self, follower: MetadataFollower) -> list[RecoveryReport]:
        settings, led = self._settings, self._led
        last_stop = LastStop(was_clean=led["was_clean"], led_alone=led["led_alone"])
        share = Share(self._number, last_stop)
        first_id = self._shared.settings.node_id
        self._broker = Broker(
            settings,
            self._loop,
            self._directory(share),
            FollowedTopics(
                lambda: follower.image,
                first_id,
                led_since=led["since"],
                make_elsewhere=self._make_topic,
                new_producer_id=self._new_producer_id,
            ),
            None,
            SURROUNDINGS._replace(
                faulted=Forwarding(self._connect, self._number).handlers,
                reserve=self._reserve,
            ),
            followed=FollowedController(follower, first_id),
            neighbours=self._neighbours,
        )
        self._broker.lead()
        return await self._opened()

    async def _parts_follow(self, delta: Delta) -> None:
        followed: asyncio.Future[None] = self._loop.create_future()

        def failed(error: Exception) -> None:
            not_followed(error)
            followed.set_result(None)

        authorizer, image = self._broker.parts.authorizer, self._broker.metadata.image
        if authorizer is not None and authorizer.acls is not image.acls:
            authorizer.take(image.acls)  # a snapshot has taken the place of all
        steps = self._broker.application.follow(delta)
        self._changes.make(steps, followed.set_result, failed)
        await followed
        self._tell_refused(None)

    def _make_topic(self, name: str, partitions: int) -> None:
        """Have the controller make a topic; on a thread of its own. Raises KafkaError."""
        topic = CreateTopicsRequest.Topic(
            name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_WITHIN_MS)

        code = self._ask_controller(request, CreateTopicsResponse).topics[0].error_code
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(code=ErrorCode(code))

    def _new_producer_id(self) -> int:
        """Have the controller give one; on a thread of its own. Raises KafkaError."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = self._ask_controller(request, InitProducerIdResponse)
        if answer.error_code:
            raise KafkaError(code=ErrorCode(answer.error_code))
        producer_id: int = answer.producer_id
        return producer_id

    def _ask_controller(self, request: Message, kind: type[Any]) -> Any:
        """Its answer, on a connection of its own: a change may take its time, and requests of one
        are answered in their order. Raises KafkaError, COORDINATOR_NOT_AVAILABLE."""

        async def ask() -> Any:
            peer = await self._connect()
            try:
                return await peer.ask(request, kind)
            finally:
                peer.close()

        try:
            return asyncio.run_coroutine_threadsafe(ask(), self._loop).result()
        except ConnectionError as error:
            raise KafkaError(str(error), code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
