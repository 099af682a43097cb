"""One connection to a controller, over asyncio: a request, then its answer.

The first request asks for the versions (KIP-35). A listener that does not offer FetchSnapshot is
none of a controller.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, TypeVar

from protocol.client import (
    LENGTH_BYTES,
    Conversation,
    OutOfStep,
    Sent,
    VersionsNotTold,
    WrongAnswer,
    written,
)
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.registry import APIS
from protocol.schema import Message
from tools.observer.effects import ObserverStopped

if TYPE_CHECKING:
    from typing import Self

Answer = TypeVar("Answer", bound=Message)

CLIENT_ID = b"triglot-observer"
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Several times what is asked for at once. A greater length is not an answer's."""
STREAM_BYTES = 1024 * 1024
"""Held in a stream before reading from the socket pauses, unless an answer is longer."""


class ConnectionLost(Exception):
    """The connection could not be made, or broke, or what came is not to be understood. It makes
    sense to try again."""


class ControllerConnection:
    """Made by `open`. Every method raises ConnectionLost; after that there is only `close`."""

    def __init__(
        self,
        address: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timeout_s: float,
    ) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s
        self._talk = Conversation(CLIENT_ID, max_answer_bytes=MAX_ANSWER_BYTES)

    @classmethod
    async def open(cls, host: str, port: int, *, timeout_s: float) -> Self:
        """Connect and ask for versions. `timeout_s` bounds that, and each call, in seconds.

        Raises ObserverStopped if the listener is not a controller's.
        """
        address = written(host, port)
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(host, port, limit=STREAM_BYTES)
        except TimeoutError:
            raise ConnectionLost(f"no connection to {address} within {timeout_s:g} s") from None
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address}: {_reason(error)}") from None
        made = cls(address, reader, writer, timeout_s)
        try:
            await made._ask_versions()
        except BaseException:
            made.close()
            raise
        return made

    def offers(self, request: type[Message], *, oldest: int = 0) -> bool:
        """Whether such a request could be sent, in version `oldest` or a later one."""
        return self._talk.version(request.key, oldest) is not None

    async def call(self, request: Message, answer: type[Answer], *, oldest: int = 0) -> Answer:
        """Send it and return the answer, in the newest version that both sides know."""
        key = type(request).key
        version = self._talk.version(key, oldest)
        if version is None:
            raise ObserverStopped(
                f"{self.address} does not speak version {oldest} of {APIS[key].name} or a later one"
            )
        sent, frame = self._talk.request(request, version)
        try:
            return self._talk.answer(sent, answer, await self._exchange(sent, frame))
        except WrongAnswer as error:
            raise ConnectionLost(f"{self.address} {error}") from None

    def close(self) -> None:
        """Drop the connection, and what is still to be sent."""
        self._writer.transport.abort()

    async def _ask_versions(self) -> None:
        step: tuple[Sent, bytearray] | None = self._talk.ask_versions()
        try:
            while step is not None:
                sent, frame = step
                step = self._talk.learn_versions(sent, await self._exchange(sent, frame))
        except VersionsNotTold:
            pass  # What is missing shows below.
        except WrongAnswer as error:
            raise ConnectionLost(
                f"what answers at {self.address} is no broker: it {error}"
            ) from None
        if not self.offers(FetchSnapshotRequest):
            raise ObserverStopped(
                f"{self.address} is not a controller's listener. Give the address of one; triglot "
                "opens one with listeners=PLAINTEXT://:9092,CONTROLLER://:9093 and "
                "controller.listener.names=CONTROLLER"
            )

    async def _exchange(self, sent: Sent, frame: bytearray) -> bytes:
        """The frame of the answer, without its length."""
        try:
            async with asyncio.timeout(self._timeout_s):
                self._writer.write(frame)
                await self._writer.drain()
                try:
                    size = self._talk.size(await self._reader.readexactly(LENGTH_BYTES))
                except OutOfStep:
                    what = f"what answers at {self.address} does not speak Kafka"
                    raise ConnectionLost(what) from None
                return await self._reader.readexactly(size)
        except TimeoutError:
            raise ConnectionLost(
                f"no answer from {self.address} to {sent.api.name} within {self._timeout_s:g} s"
            ) from None
        except EOFError:  # IncompleteReadError
            raise ConnectionLost(
                f"{self.address} closed the connection at {sent.api.name}"
            ) from None
        except OSError as error:
            raise ConnectionLost(
                f"lost the connection to {self.address} at {sent.api.name}: {_reason(error)}"
            ) from None


def _reason(error: OSError) -> str:
    """What the system says of it: asyncio puts the address into its own words."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error) or type(error).__name__).lower()
