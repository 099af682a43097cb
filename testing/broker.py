"""A broker in a process of its own, for as long as a test needs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from testing.contents import Contents, new_cluster
from testing.errors import BrokerFailed
from testing.folders import bytes_max, copy_data, place_of
from testing.processes import BrokerProcess, broker_server, log_of
from testing.requests import Start
from testing.settings import OF_TESTS, as_of, of_broker, texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from types import TracebackType
    from typing import Self

    from client.cluster import Cluster
    from testing.control import Control
    from testing.faults import Fault

START_WITHIN_S = 60.0
"""Time for a start; a machine on which many tests run at once may need seconds."""


class Snapshot(NamedTuple):
    """What was in a broker, until the end of the test run. `directory` is a data directory, also
    for `Broker(directory=...)`."""

    directory: Path


class Broker(Contents):
    """A real broker on a free port of 127.0.0.1, empty at first, gone at the end.

    It runs in a process of its own, which ends with the test run, also if that is killed; so does
    its data. As a context manager it is started on entry and discarded on exit.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        directory: str | PathLike[str] | None = None,
        memory: bool | int = False,
        as_version: str | None = None,
    ) -> None:
        """`settings` have Kafka's names, as in `{"auto.create.topics.enable": False}`.

        `directory` is a data directory to begin with, triglot's or Apache Kafka's; it is copied.
        With `memory` the data is in a file system in memory (/dev/shm), else in the folder for
        temporary files. A number is the most bytes that it takes there, `True` 256 MiB: with more
        the disk is full.
        `as_version` is a release of Kafka: clients are answered and refused as by that
        (docs/rehearsal.md).
        """
        self.settings = OF_TESTS | as_of(as_version) | texts(settings)
        self.port = 0
        self._directory = None if directory is None else Path(directory)
        self._memory = memory
        self._folder: Path | None = None
        self._restored = 0
        self._process: BrokerProcess | None = None
        self._cluster: Cluster | None = None

    # Its life.

    @property
    def bootstrap(self) -> str:
        """What clients take as bootstrap servers: `127.0.0.1:PORT`."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process that it runs in."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether its process is there: it may have been stopped, or have died."""
        return self._process is not None and not self._process.has_ended()

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self._data(self._restored)

    @property
    def log(self) -> str:
        """What it has logged, over all of its runs."""
        return log_of(self._home() / "log")

    def start(self) -> None:
        """Start it, and wait until it is ready. Raises BrokerFailed with the reason."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        """Start it without waiting; `wait_until_ready` is to follow."""
        assert self._process is None, "it is running"
        if self._folder is None:
            self._folder = broker_server().folder(place_of(self._memory))
            if self._directory is not None:
                copy_data(self._directory, self.data)
        self._process = broker_server().start(self._start_on(self.data))

    def wait_until_ready(self) -> None:
        """Wait for what `begin` began. Raises BrokerFailed."""
        assert self._process is not None, "it was not started"
        try:
            self.port = self._process.wait_until_ready(START_WITHIN_S)
        except BaseException:
            self._process = None
            raise

    def stop(self) -> None:
        """Stop it cleanly; data and port are kept for another `start`."""
        process = self._running()
        self._forget_process()
        process.terminate()

    def kill(self) -> None:
        """End it as a crash does (SIGKILL); data and port are kept for another `start`."""
        process = self._running()
        self._forget_process()
        process.kill()

    def restart(self) -> None:
        """Stop it cleanly and start it, on the same data and port."""
        self.stop()
        self.start()

    def discard(self) -> None:
        """End it at once, and remove its data."""
        process, folder = self._process, self._folder
        self._forget_process()
        self._folder = None
        if process is not None:
            process.discard()
        if folder is not None:
            broker_server().do("remove", folder=str(folder))

    # What was in it.

    def snapshot(self) -> Snapshot:
        """All that is in it now: topics, groups, offsets and transactions, open ones too.

        The broker does nothing while its files are copied. What it has acknowledged is in them.
        """
        process = self._running()
        folder = broker_server().folder(place_of(self._memory))
        process.pause()
        try:
            copy_data(self.data, folder / "data")
        finally:
            process.resume()
        mark = Snapshot(folder / "data")
        broker_server().prepare(self._way_back(mark))
        return mark

    def restore(self, mark: Snapshot) -> None:
        """Have all be as it was at the mark, on the same port; clients connect anew.

        A broker of this or of another test may be restored to a mark, again and again. What a start
        after a crash finds is what is there: members of groups have to join again. Raises
        BrokerFailed; it does not run then.
        """
        process, before, start = self._running(), self.data, self._way_back(mark)
        self._forget_process()
        process.discard()
        self._process = broker_server().start(start)
        self.wait_until_ready()
        self._restored += 1
        broker_server().do("remove", folder=str(before))
        broker_server().prepare(self._way_back(mark))

    # What is in it.

    @property
    def cluster(self) -> Cluster:
        """A client of it; connects when it is first asked something."""
        self._running()
        if self._cluster is None:
            self._cluster = new_cluster(self.bootstrap)
        return self._cluster

    @property
    def control(self) -> Control:
        """The interface of its faults (docs/faults.md); no port is open."""
        from testing.control import Control

        return Control(lambda *call: self._running().call(*call))

    def unfired(self) -> list[Fault]:
        """The faults of this run of its process that never acted; none if it has ended."""
        if self._process is None or not self._process.was_called or not self.is_running:
            return []
        return self.faults.unfired()

    def _start_on(self, data: Path, mark: Snapshot | None = None) -> Start:
        """Of its next process, on this data; with a mark, a copy of what was there at that."""
        begins_with = data if mark is None else mark.directory
        settings = of_broker(self.settings, begins_with, self.bootstrap)
        return Start(
            settings | {"log.dirs": str(data)},
            str(self._home() / "log"),
            bytes_max(self._memory),
            None if mark is None else str(mark.directory),
        )

    def _way_back(self, mark: Snapshot) -> Start:
        return self._start_on(self._data(self._restored + 1), mark)

    def _data(self, restored: int) -> Path:
        return self._home() / f"data-{restored}"

    def _home(self) -> Path:
        if self._folder is None:
            raise BrokerFailed("the broker was not started, or is gone: it has no data")
        return self._folder

    def _running(self) -> BrokerProcess:
        if self._process is None:
            raise BrokerFailed("the broker does not run: start() starts it")
        return self._process

    def _forget_process(self) -> None:
        self._process = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.discard()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    def __repr__(self) -> str:
        where = f"on {self.bootstrap}" if self._process is not None else "not running"
        return f"<triglot.testing.Broker {where}>"
