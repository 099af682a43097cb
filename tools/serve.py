"""`triglot serve`: the broker, from its arguments to its end."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from typing import TYPE_CHECKING

from tools.arguments import refuse

if TYPE_CHECKING:
    from broker.faults.injection import FaultInjection
    from broker.security.credentials import NewCredential
    from config import BrokerSettings

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

SERVE_HELP = """\
Start the broker.

  triglot serve                                   on 127.0.0.1:9092, data in ./data
  triglot serve --listen 127.0.0.1:0              on any free port; the ready line names it
  triglot serve --config server.properties        with the settings of an Apache Kafka broker
  triglot serve --set log.retention.hours=24      one setting, over all others
  triglot serve --console 127.0.0.1:8092          and look at it with a browser
  triglot serve --as-version 4.1                  what do my clients do with Kafka 4.1?

Settings come from the defaults, then the properties file, then TRIGLOT_ environment variables
(TRIGLOT_LOG_RETENTION_HOURS=24), then --set. `triglot config keys` lists them. SIGTERM and Ctrl-C
finish what is in flight and stop cleanly.
"""


def add_commands(commands: Commands) -> None:
    """Add `serve` to the command line's."""
    serve = commands.add_parser(
        "serve",
        help="start the broker",
        description=SERVE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.set_defaults(run=run_serve)
    serve.add_argument("--config", metavar="FILE", help="a server.properties file")
    serve.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="one setting; may be given several times",
    )
    serve.add_argument("--data", metavar="DIR", help="data directory (log.dirs); default ./data")
    serve.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="address to listen on (listeners); default 127.0.0.1:9092; port 0 picks a free one",
    )
    _add_console_and_processes(serve)
    serve.add_argument(
        "--as-version",
        metavar="RELEASE",
        help="answer and refuse clients as a broker of this release of Kafka would, from 0.8.2 to "
        "4.4 (as.version; docs/rehearsal.md)",
    )
    serve.add_argument(
        "--add-scram",
        metavar="CREDENTIAL",
        action="append",
        default=[],
        help="a user for SCRAM, unless it is there: 'SCRAM-SHA-256=[name=USER,password=PASSWORD]' "
        "as for Kafka's storage tool, or @FILE with one on each line, which no list of processes "
        "shows; may be given several times",
    )
    serve.add_argument(
        "--testing",
        metavar="HOST:PORT",
        help="let tests break this broker: a control port for faults, on loopback "
        "(docs/faults.md); port 0 picks a free one, which the ready line names",
    )
    serve.add_argument(
        "--testing-anywhere",
        action="store_true",
        help="let the control port be where other machines reach it",
    )
    serve.add_argument(
        "--faults",
        metavar="FILE",
        help="faults to begin with: a JSON list of them, with a control port or without",
    )
    serve.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    serve.add_argument(
        "--json", action="store_true", help="log lines and the ready line as JSON, for machines"
    )


def _add_console_and_processes(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--console",
        metavar="HOST:PORT",
        help="serve the console there, pages for a browser (console.host, console.port; "
        "docs/console.md); port 0 picks a free one, which the ready line names",
    )
    serve.add_argument(
        "--console-writable",
        action="store_true",
        help="let the console change things too (console.writable)",
    )
    serve.add_argument(
        "--processes",
        metavar="N",
        help="processes that share the partitions, each a broker with an id and ports of its own, "
        "counted up from the first; auto is one for each core (broker.processes)",
    )


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal; 1 for a start that is refused, 2 for settings that are wrong."""
    gc.disable()  # nothing of what is imported is for the collector
    from broker import logs
    from broker.server import StartRefused, serve
    from config import ConfigError, load

    gc.enable()

    logs.configure(level=arguments.log_level, as_json=arguments.json)
    try:
        overrides = _overrides(arguments)
    except ValueError as error:
        return refuse(str(error), code=2)
    try:
        settings = load(properties_file=arguments.config, environ=os.environ, overrides=overrides)
    except ConfigError as error:
        return refuse(str(error), code=2)
    except OSError as error:
        return refuse(f"can't read {arguments.config}: {error.strerror}", code=2)
    try:
        credentials = _new_credentials(arguments)
        testing = _testing(arguments)
    except ValueError as error:
        return refuse(str(error), code=2)
    console = None
    if settings.console_port is not None:
        from tools.console import SERVED_BY, missing_packages

        console, missing = SERVED_BY, missing_packages()
        if missing:
            return refuse(missing, code=1)
    _name_exposed_secrets(settings, arguments)
    try:
        if settings.broker_processes != 1:
            if testing is not None:
                return refuse(
                    "--testing and --faults are for one process (broker.processes)", code=2
                )
            return _serve_processes(settings, credentials, console, as_json=arguments.json)
        serve(
            settings,
            as_json=arguments.json,
            credentials=credentials,
            testing=testing,
            console=console,
        )
    except StartRefused as refusal:
        return refuse(str(refusal), code=1)
    return 0


def _serve_processes(
    settings: BrokerSettings,
    credentials: list[NewCredential],
    console: str | None,
    *,
    as_json: bool,
) -> int:
    """Several processes. Raises StartRefused."""
    from config.platforms import PORTABLE

    if sys.platform == "linux" and not PORTABLE:
        from broker.processes.starting import serve_processes  # most brokers are one

        serve_processes(settings, as_json=as_json, credentials=credentials, console=console)
        return 0
    return refuse("several processes (broker.processes) are served by Linux alone", code=2)


def _overrides(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings that the command line has. Raises ValueError."""
    overrides: dict[str, str] = {}
    for item in arguments.overrides:
        key, separator, value = item.partition("=")
        if not separator:
            raise ValueError(f"--set wants KEY=VALUE, found '{item}'")
        overrides[key.strip()] = value.strip()
    if arguments.data is not None:
        overrides["log.dirs"] = arguments.data
    if arguments.listen is not None:
        host, port = _address(arguments.listen)
        if not port.isdigit():
            raise ValueError(f"--listen wants HOST:PORT, found '{arguments.listen}'")
        overrides["listeners"] = f"PLAINTEXT://{host}:{port}"
    if arguments.console is not None:
        host, port = _address(arguments.console)
        if not port.isdigit():
            raise ValueError(f"--console wants HOST:PORT, found '{arguments.console}'")
        overrides |= {"console.host": host.strip("[]"), "console.port": port}
    if arguments.console_writable:
        overrides["console.writable"] = "true"
    if arguments.processes is not None:
        overrides["broker.processes"] = arguments.processes
    if arguments.as_version is not None:
        overrides["as.version"] = arguments.as_version
    return overrides


def _new_credentials(arguments: argparse.Namespace) -> list[NewCredential]:
    """Those of --add-scram. Raises ValueError."""
    credentials: list[NewCredential] = []
    for text in arguments.add_scram:
        try:
            credentials += _credentials(text)
        except ValueError as error:
            raise ValueError(f"--add-scram wants {error}") from None
        except OSError as error:
            raise ValueError(f"can't read {text[1:]}: {error.strerror}") from None
    return credentials


def _address(text: str) -> tuple[str, str]:
    """Host and port; no port where there is no colon."""
    host, separator, port = text.rpartition(":")
    return (host, port) if separator else (text, "")


def _testing(arguments: argparse.Namespace) -> FaultInjection | None:
    """What tests may do to the broker, if they may. Raises ValueError for wrong arguments."""
    if arguments.testing is None and arguments.faults is None:
        return None
    from broker import logs
    from broker.faults.injection import Address, FaultInjection  # nobody else pays for it
    from tools.faults import added

    control = None
    if arguments.testing is not None:
        host, port = _address(arguments.testing)
        if not port.isdigit():
            raise ValueError(f"--testing wants HOST:PORT, found '{arguments.testing}'")
        control = Address(host, int(port), arguments.testing_anywhere)
    testing = FaultInjection(control)
    if arguments.faults is not None:
        why = added(testing.interface, arguments.faults)
        if why:
            raise ValueError(f"--faults {arguments.faults}: {why}")
        logs.warning("TESTING IS ON: this broker does wrong on purpose", faults=arguments.faults)
    return testing


def _name_exposed_secrets(settings: BrokerSettings, arguments: argparse.Namespace) -> None:
    """Say in the log which passwords were given where every user of this machine can see them, and
    that they may change the settings."""
    from config.keys import known_key

    names = [one for one in settings.layers.static if (key := known_key(one)) and key.sensitive]
    if not names and not arguments.add_scram and arguments.config is None:
        return
    from broker import logs
    from config.exposed import (
        ON_THE_COMMAND_LINE,
        exposed_file,
        exposed_settings,
        may_be_changed,
    )

    if arguments.config is not None and may_be_changed(arguments.config):
        logs.warning("every user of this machine may change the settings", file=arguments.config)
    sentences = list(exposed_settings(settings, names))
    for text in arguments.add_scram:
        if text.startswith("@"):
            sentences += exposed_file(text[1:], "passwords of users (--add-scram)")
        else:
            sentences.append(f"a password was given on {ON_THE_COMMAND_LINE}; --add-scram @FILE")
    for sentence in sentences:
        logs.warning("passwords can be seen by others", where=sentence)


def _credentials(text: str) -> list[NewCredential]:
    """The credentials of one --add-scram. Raises ValueError and OSError."""
    from pathlib import Path

    from broker.security.credentials import parse_new_credential

    if not text.startswith("@"):
        return [parse_new_credential(text)]
    lines = Path(text[1:]).read_bytes().decode().splitlines()
    return [
        parse_new_credential(line) for line in lines if line.strip() and not line.startswith("#")
    ]
