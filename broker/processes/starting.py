"""The supervisor's side: the lock, the identity and the sockets that listen are taken before there
is any process. So they outlive each of them: clients of one that has died wait for the next.
"""

from __future__ import annotations

import os
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING

from broker import clock, logs
from broker._version import VERSION
from broker.network import descriptors
from broker.network.listening import listening_sockets
from broker.notify import notify
from broker.partitions.disk_state import ReserveFile, at_once
from broker.processes.serving import serve
from broker.processes.shared import Shared
from broker.server import StartRefused
from broker.supervision.supervisor import Supervisor
from broker.surroundings import SURROUNDINGS
from config.formats import PROCESSES_MAX
from storage.data_dir import DataDirectory
from storage.errors import DataDirectoryError
from storage.layout import RESERVE
from storage.share import join_clean_states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.network.listening import Bound
    from broker.processes.console import ConsoleBeside
    from broker.security.credentials import NewCredential
    from config import BrokerSettings


def serve_processes(
    settings: BrokerSettings,
    *,
    as_json: bool = False,
    credentials: Sequence[NewCredential] = (),
    console: str | None = None,
) -> None:
    """Run as many processes as `settings` say until SIGTERM or SIGINT. `console` is the module that
    serves console.port, if that is set. Raises StartRefused."""
    count = settings.broker_processes or min(len(os.sched_getaffinity(0)), PROCESSES_MAX)
    files, path = SURROUNDINGS.files, settings.data_directory
    descriptors.raise_limit()
    directory = None
    internal = [_internal_socket() for _ in range(count)]
    try:
        directory = DataDirectory.take(
            files,
            path,
            node_id=settings.node_id,
            new_uuid=SURROUNDINGS.new_uuid,
            cluster_id=settings.cluster_id,
            for_processes=True,
        )
        files.remove(f"{path}/{RESERVE}")  # recovery may need the room
        bound = [_bind(settings, number) for number in range(count)]
        beside = None if console is None else _open_console(console, settings, bound)
        shared = Shared(
            settings,
            directory.identity,
            credentials,
            bound,
            internal,
            [one.getsockname() for one in internal],
            None if beside is None else beside.figures,
        )
    except (DataDirectoryError, OSError, StartRefused) as error:
        if directory is not None:
            directory.release()
        raise StartRefused(str(error)) from error

    def announce() -> None:
        # Whoever comes back from now on comes back from a crash, to a directory that is ours.
        supervisor.led |= {"was_clean": False, "led_alone": True}
        _announce(shared, None if beside is None else beside.url, as_json=as_json)

    reserve = ReserveFile(files, path, settings.disk_reserve_bytes, at_once)
    supervisor = Supervisor(count, partial(serve, shared), announce, reserve, beside=beside)
    finish = supervisor.run()
    if finish.clean:
        try:
            join_clean_states(files, path, count, broker_epoch=supervisor.broker_epoch)
        except (OSError, ValueError, KeyError, TypeError) as error:
            logs.error("the stop is not noted as a clean one", reason=str(error))
    directory.release()
    if finish.failed:
        raise StartRefused(supervisor.refusal or "a process could not start; its log says why")


def _bind(settings: BrokerSettings, number: int) -> Bound:
    """Listen for clients of a process: on the ports of the settings, counted up. Raises
    CannotListen."""
    bound: Bound = {}
    for listener in settings.client_listeners:
        wanted = listener._replace(port=listener.port and listener.port + number)
        sockets = listening_sockets(wanted)
        bound[wanted._replace(port=sockets[0].getsockname()[1])] = sockets
    return bound


def _open_console(module: str, settings: BrokerSettings, bound: Sequence[Bound]) -> ConsoleBeside:
    """Listen for browsers. Raises StartRefused."""
    from broker.console import CannotServe  # few directories have one
    from broker.processes.console import open_console

    try:
        return open_console(module, settings, SURROUNDINGS.files, bound)
    except CannotServe as error:
        raise StartRefused(str(error)) from error
    except OSError as error:
        raise StartRefused(f"{error} (--console HOST:PORT)") from error


def _internal_socket() -> socket.socket:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.setblocking(False)
    one.bind(b"\0triglot-" + os.urandom(16).hex().encode())
    one.listen()
    return one


def _announce(shared: Shared, console: str | None, *, as_json: bool) -> None:
    """Print the ready line. `console` is where that is served, if it is."""
    first = next(iter(shared.bound[0]))
    ports = shared.ports[first.name]
    data = os.path.abspath(shared.settings.data_directory)  # noqa: PTH100 - start-up time
    started_ms = clock.process_age_ms()
    host = next(iter(shared.bound[0].values()))[0].getsockname()[0]
    if as_json:
        import json

        facts = {
            "event": "ready",
            "version": VERSION,
            "host": host,
            "port": ports[0],
            "ports": list(ports),
            "data": data,
            "started_ms": started_ms,
        }
        if console is not None:
            facts["console"] = console
        line = json.dumps(facts)
    else:
        told = ", ".join(map(str, ports))
        line = (
            f"triglot {VERSION} ready: {shared.processes} processes, listening on {host}:{told}, "
            f"data in {data}, started in {started_ms} ms"
        )
        if console is not None:
            line += f"; console at {console}"
    print(line, file=sys.stdout, flush=True)
    notify(READY="1", STATUS=f"{shared.processes} processes, data in {data}")
