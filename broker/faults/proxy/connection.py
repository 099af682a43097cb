"""One client's connection through the proxy.

Requests go to the broker as the bytes that they are, and answers come back so, in their order: the
answers that are due stand in a queue, and one that a fault makes waits there for its turn. A
request is decoded to be remembered and compared with the faults; an answer, where it has addresses
or a fault changes it. Whatever is not understood passes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from broker import logs
from broker.faults.conversations import text_of
from broker.faults.engine import Call
from broker.faults.places import groups
from broker.faults.proxy.answers import METADATA_KEY, brokers_in, is_looked_at, limit_versions
from broker.faults.proxy.brokers import Upstream
from broker.faults.proxy.frames import (
    answer_frame,
    answer_version,
    decoded_answer,
    decoded_request,
    framed,
    frames,
    head_of,
    request_frame,
)
from broker.faults.refusal import asked, refusal
from protocol.connection import FETCH_KEY, PRODUCE_KEY
from protocol.errors import Malformed
from protocol.header import API_VERSIONS_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from broker.faults.conversations import Conversations
    from broker.faults.engine import Engine, Fault, Hit
    from broker.faults.fetches import Key
    from broker.faults.proxy.answers import TopicNames
    from broker.faults.proxy.brokers import Brokers
    from broker.faults.proxy.frames import RequestHead
    from broker.faults.proxy.observer import Observer
    from broker.faults.refusal import Asked, Refusal

CORRELATION_ID_OF_REQUEST, CORRELATION_ID_OF_ANSWER = slice(4, 8), slice(4)
"""Where it is in a frame."""
UNANSWERED_MAX = 1_000
"""Requests of a connection that wait for answers; then no more of it is read."""
SESSION_PARTITIONS_MAX = 100_000
"""Partitions of a fetch session that are remembered, far more than a broker keeps for one."""


class Due:
    """An answer that the client waits for."""

    def __init__(
        self,
        head: RequestHead | None,
        *,
        frame: bytes | None,
        is_answered: bool = True,
        fault: Fault | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        """`frame` goes to the broker, None if nothing does. `head` is None for bytes that are not
        understood."""
        self.head = head
        self.frame = frame
        self.is_answered = is_answered
        """Whether the client gets an answer at all: a producer may want none (acks=0)."""
        self.fault = fault
        self.refusal = refusal
        self.done = asyncio.Event()

    @property
    def closes(self) -> bool:
        """Whether the connection is closed in place of this answer."""
        if self.fault is None:
            return False
        return self.fault.action == "close" or (
            self.fault.action == "error" and not self.is_answered
        )

    @property
    def throttle_ms(self) -> int:
        """The throttle time that the answer is to have; 0 is that of the broker."""
        if self.fault is None or self.fault.action != "throttle_ms":
            return 0
        return int(self.fault.value)


class ProxiedConnection:
    """A client's connection and the broker's, from one end to the other."""

    def __init__(
        self,
        *,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        brokers: Brokers,
        names: TopicNames,
        engine: Engine,
        conversations: Conversations,
        now_ms: Callable[[], int],
        observer: Observer | None = None,
    ) -> None:
        self._from_client, self._to_client = client
        self._from_upstream, self._to_upstream = upstream
        self._brokers = brokers
        self._names = names
        self._engine = engine
        self._conversations = conversations
        self._now_ms = now_ms
        self._observer = observer
        self._due: asyncio.Queue[Due | None] = asyncio.Queue()
        """None is the end of the broker's answers."""
        self._room = asyncio.Semaphore(UNANSWERED_MAX)
        self._expected: deque[bytes] = deque()
        """The correlation ids of what the broker has not answered yet, as they are sent; at most
        UNANSWERED_MAX."""
        self._has_answered = False
        """Whether any answer of the broker has come."""
        self._session: list[Key] = []
        """What the client's fetch session reads; a connection has one at most."""
        there = self._to_upstream.get_extra_info("peername")
        self._broker = f"{there[0]}:{there[1]}"
        here, peer = (self._to_client.get_extra_info(name) for name in ("sockname", "peername"))
        self._host_here: str = here[0]
        self._peer = f"{peer[0]}:{peer[1]}"

    async def run(self) -> None:
        """Carry both ways until one side ends. Raises OSError, Malformed."""
        if self._observer is not None:
            self._observer.opened(self._peer, self._broker)
        ways = [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._answers())]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            if self._observer is not None:
                self._observer.closed(self._peer)

    async def _requests(self) -> None:
        """From the client to the broker."""
        requests = frames(self._from_client)
        async for frame in requests:
            due = self._met(frame)
            if self._observer is not None:
                self._observer.asked(self._peer, due.head, frame)
            if due.is_answered or due.closes:
                await self._room.acquire()
                self._due.put_nowait(due)  # before its answer can come
                if due.frame is not None and due.is_answered:
                    self._expected.append(due.frame[CORRELATION_ID_OF_REQUEST])
            if due.frame is not None:
                self._to_upstream.write(framed(due.frame))
                await self._to_upstream.drain()
            if due.fault is not None and due.fault.action != "error":
                await self._over(due, due.fault, requests)

    async def _over(self, due: Due, fault: Fault, requests: AsyncIterator[bytes]) -> None:
        """Come back when the fault is over: a connection starts no other request before."""
        if fault.action == "never_answer":
            async for _ in requests:  # up to their end
                pass
        elif due.is_answered or due.closes:
            await due.done.wait()
        await asyncio.sleep(due.throttle_ms / 1000)

    def _met(self, frame: bytes) -> Due:
        """What becomes of a request."""
        head = head_of(frame)
        if head is None:
            return Due(None, frame=frame)
        try:
            message: Any = decoded_request(head, frame)
        except Malformed as error:
            self._say_malformed("a request passes without a look at it", head, error)
            return Due(None, frame=frame)
        found = asked(head.api, head.version, message, self._names, lambda _: self._session)
        if head.api.key == FETCH_KEY:
            self._session = list(found.keys[:SESSION_PARTITIONS_MAX])
        self._conversations.add(
            time_ms=self._now_ms(),
            client=head.client_id,
            address=self._peer,
            api=head.api.name,
            version=head.version,
            text=text_of(message, head.version, self._names),
        )
        hit = self._engine.meet(Call(head.api.name, head.client_id, found.places, groups(message)))
        is_answered = head.api.key != PRODUCE_KEY or message.acks != 0
        if hit is None:
            return Due(head, frame=frame, is_answered=is_answered)
        self._conversations.note_fault(f"{hit.fault.number}: {hit.fault}")
        logs.info(
            "a request meets a fault",
            fault=f"{hit.fault.number}: {hit.fault}",
            api=f"{head.api.name} v{head.version}",
            client_id=head.client_id,
        )
        return self._faulted(head, frame, found, hit, is_answered=is_answered)

    def _faulted(
        self, head: RequestHead, frame: bytes, found: Asked, hit: Hit, *, is_answered: bool
    ) -> Due:
        fault, sent, refused = hit.fault, frame, None
        if fault.action == "close" and fault.value == "before":
            return Due(head, frame=None, is_answered=is_answered, fault=fault)
        if fault.action == "error":
            refused = refusal(found, hit)
            if refused.rest is None:
                return Due(head, frame=None, is_answered=is_answered, fault=fault, refusal=refused)
            if refused.at_once:
                refused.rest.max_wait_ms = 0
            sent = request_frame(head, frame, refused.rest)
        return Due(head, frame=sent, is_answered=is_answered, fault=fault, refusal=refused)

    async def _answers(self) -> None:
        """From the broker to the client."""
        answers = frames(self._from_upstream)
        ahead = asyncio.ensure_future(self._next(answers))
        try:
            while (due := await self._due.get()) is not None:
                answer = b""
                if due.frame is not None and due.is_answered:
                    came = await ahead
                    if came is None:
                        raise ConnectionError(self._why_closed())
                    expected = self._expected.popleft()
                    if self._is_passed_over(due, expected, came):
                        self._over_with(due)
                        continue
                    answer, ahead = came, asyncio.ensure_future(self._next(answers))
                if due.closes:
                    return
                if due.fault is None or due.fault.action != "never_answer":
                    await self._answer(due, answer)
                self._over_with(due)
            await ahead  # raises what it met
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    def _is_passed_over(self, due: Due, expected: bytes, answer: bytes) -> bool:
        """Whether the broker has given no answer to this request, but one to a later request:
        Kafka 0.9 does so with what it does not know."""
        found = answer[CORRELATION_ID_OF_ANSWER]
        return due.head is not None and found != expected and found in self._expected

    def _over_with(self, due: Due) -> None:
        due.done.set()
        self._room.release()

    async def _next(self, answers: AsyncIterator[bytes]) -> bytes | None:
        """The broker's next answer; None at its end, which is told to the queue as well: nothing
        may be due then, and the client is to see that its connection has ended."""
        answer = None
        try:
            answer = await anext(answers, None)
        except Malformed as error:
            raise Malformed(f"the broker does not speak plain Kafka: {error}") from error
        finally:
            if answer is None:
                self._due.put_nowait(None)
            else:
                self._has_answered = True
        return answer

    def _why_closed(self) -> str:
        if self._has_answered:
            return "the broker closed the connection"
        return "the broker closed the connection without an answer, as a listener with TLS does"

    async def _answer(self, due: Due, answer: bytes) -> None:
        head, fault = due.head, due.fault
        if head is not None and (
            due.refusal is not None or due.throttle_ms or is_looked_at(head.api, head.version)
        ):
            answer = await self._changed(due, head, answer)
        if fault is not None and fault.action == "delay_ms":
            await asyncio.sleep(fault.value / 1000)
        if self._observer is not None:
            self._observer.answered(self._peer, head, answer)
        self._to_client.write(framed(answer))
        await self._to_client.drain()

    async def _changed(self, due: Due, head: RequestHead, answer: bytes) -> bytes:
        """The answer as the client is to see it: the same bytes, unless something in it changes."""
        if due.frame is None:
            assert due.refusal is not None
            return answer_frame(head, head.version, due.refusal.answer(None))
        version = answer_version(head, answer)
        try:
            message: Any = decoded_answer(head, version, answer)
        except Malformed as error:
            self._say_malformed("an answer passes as it is", head, error)
            return answer
        is_changed = False
        if head.api.key == API_VERSIONS_KEY:
            is_changed = limit_versions(message)
        elif head.api.key == METADATA_KEY:
            self._names.learn(message)
        for broker in brokers_in(message):
            is_changed |= await self._lead_here(broker)
        if due.refusal is not None:
            message, is_changed = due.refusal.answer(message), True
        elif due.throttle_ms and hasattr(message, "throttle_time_ms"):  # four APIs have none
            message.throttle_time_ms, is_changed = due.throttle_ms, True
        return answer_frame(head, version, message) if is_changed else answer

    async def _lead_here(self, broker: Any) -> bool:
        """Put the address of the proxy in place of the broker's; whether that was done."""
        port = await self._brokers.open(Upstream(broker.host, broker.port))
        if port is not None:
            listening = self._brokers.listening
            broker.host, broker.port = listening.advertised(port, self._host_here)
        return port is not None

    def _say_malformed(self, what: str, head: RequestHead, error: Malformed) -> None:
        cause = f"{head.api.name} v{head.version}: {error}"
        logs.warn_once_a_minute(what, cause=cause, address=self._peer.rpartition(":")[0])
