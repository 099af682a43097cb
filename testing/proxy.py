"""Faults in front of a broker that knows nothing of them, from Python."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from broker import clock, logs
from broker.faults.proxy.brokers import Listening, Upstream
from broker.faults.proxy.server import Proxy
from testing.control import ANSWER_WITHIN_S, Control
from testing.errors import BrokerFailed
from testing.faults import Fault, Faults, conversations

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType
    from typing import Self

    from broker.faults.conversations import Sent

    Result = TypeVar("Result")


class FaultProxy:
    """A proxy in front of any broker or cluster, Apache Kafka included.

        with FaultProxy(kafka.bootstrap) as proxy:
            producer = KafkaProducer(bootstrap_servers=proxy.bootstrap)
            with proxy.faults.drop_answer("Produce"):
                ...

    It runs in a thread of the test's process, and is gone with that. Clients stay on it for all
    brokers of the cluster. What only a broker can do (disk, clock, rebalances, elections) it
    refuses.
    """

    def __init__(
        self,
        in_front_of: str,
        *,
        host: str = "127.0.0.1",
        ports: range | None = None,
        advertised: str = "",
        advertised_port: int = 0,
    ) -> None:
        """`in_front_of` is host:port of one broker.

        It listens on free ports of `host`, or on `ports`, one for each broker. Where clients reach
        it by another address, as from or in a container, `advertised` is the host that they take,
        and `advertised_port` stands for the first of `ports`, the next number for the next.
        """
        upstream, _, port = in_front_of.rpartition(":")
        if not upstream or not port.isdecimal():
            raise ValueError(f"in_front_of is host:port of a broker, found '{in_front_of}'")
        if advertised_port and not ports:
            raise ValueError("advertised_port stands for the first of ports, which were not given")
        first, last = (ports[0], ports[-1]) if ports else (0, 0)
        self._listening = Listening(host, first, last, advertised, advertised_port)
        self._proxy = Proxy(Upstream(upstream.strip("[]"), int(port)), now_ms=clock.now_ms)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread
        self.host, self.port = host, 0
        """Where clients reach the broker that was named."""

    @property
    def bootstrap(self) -> str:
        """What clients take as bootstrap servers."""
        return f"{self.host}:{self.port}"

    @property
    def control(self) -> Control:
        """The interface of its faults (docs/faults.md); no port is open."""
        return Control(self._call)

    @property
    def faults(self) -> Faults:
        """What has it do wrong."""
        return Faults(self.control)

    def conversations(
        self, *, client: str | None = None, api: str | None = None, after: int = 0
    ) -> list[Sent]:
        """The last requests, oldest first: of a client id, of an API, numbered above `after`."""
        return conversations(self.control, client=client, api=api, after=after)

    def unfired(self) -> list[Fault]:
        """The faults that never acted."""
        return self.faults.unfired()

    def start(self) -> None:
        """Listen. Raises BrokerFailed with the reason."""
        assert self._loop is None, "it is running"
        logs.configure(level="warning")  # to standard error, which is the test's
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="triglot-faults", daemon=True
        )
        self._thread.start()
        try:
            port = self._done(self._proxy.open(self._listening, None))
        except OSError as error:
            self._end_thread()
            reason = error.strerror or str(error)
            raise BrokerFailed(
                f"the proxy can't listen on {self._listening.host}: {reason}"
            ) from None
        self.host, self.port = self._listening.advertised(port, self._listening.host)

    def stop(self) -> None:
        """Close all connections through it; what happened is forgotten."""
        self._done(self._proxy.close())
        self._end_thread()

    def _call(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        async def call() -> tuple[int, Any]:
            return self._proxy.interface.call(method, path, body)

        return self._done(call())

    def _done(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop is None:
            work.close()
            raise BrokerFailed("the proxy does not run: start() starts it")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_WITHIN_S)

    def _end_thread(self) -> None:
        loop, self._loop = self._loop, None
        assert loop is not None
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = f"on {self.bootstrap}" if self._loop is not None else "not running"
        return f"<triglot.testing.FaultProxy {where}>"
