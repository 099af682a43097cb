"""Structured logs, by structlog, on standard error.

structlog is imported with the first line that is really written: a start without anything to say
does not pay for it. No line is written per request; what a client does wrong is said once per
cause and address and minute.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from broker import clock
from storage.filesystem import SPARES

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
ONCE_EVERY_S = 60
REMEMBERED_CAUSES = 1024
"""Bound on the (cause, place) pairs remembered for once-a-minute lines."""

_level = LEVELS["info"]
_level_at_start = "info"
_json = False
_logger: Any = None
_always: dict[str, Any] = {}
"""Facts of every line."""
_said: dict[tuple[str, str], float] = {}


def configure(*, level: str = "info", as_json: bool = False) -> None:
    """Set what is logged and how; takes effect for the next line."""
    global _json, _level_at_start
    _json = as_json
    _level_at_start = level
    set_level(level)


def say_always(**facts: Any) -> None:
    """Have every line say these, before what it is about."""
    _always.update(facts)


def level() -> str:
    """The level from which on lines are written, one of LEVELS."""
    return next(name for name, number in LEVELS.items() if number == _level)


def set_level(level: str | None) -> None:
    """Write lines from another level on; None is the one of the start."""
    global _level, _logger
    _level = LEVELS[level or _level_at_start]
    _logger = None


def _get() -> Any:
    global _logger
    if _logger is None:
        structlog = _imported()
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer()
                if _json
                else structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(),
                    exception_formatter=structlog.dev.plain_traceback,
                ),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(_level),
            logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
            cache_logger_on_first_use=True,
        )
        _logger = structlog.get_logger()
    return _logger


def _imported() -> Any:
    """structlog. The first line may be the one that says that no descriptor is left, so one of the
    spares makes room for the files of the import."""
    with SPARES.lent():
        import structlog
    return structlog


def warm_up() -> None:
    """Import what the first line needs, in a thread: on the loop that would take 50 ms."""
    _imported()


def _write(level: str, event: str, facts: dict[str, Any]) -> None:
    """Write a line. Who has something to say never fails over it: where structlog cannot be loaded
    the line is a plain one, and where nothing takes it (a full disk) there is none."""
    if _always:
        facts = {**_always, **facts}
    try:
        getattr(_get(), level)(event, **facts)
    except (OSError, ImportError):
        with suppress(OSError):
            sys.stderr.write(f"[{level}] {event} {facts}\n")


def debug(event: str, **facts: Any) -> None:
    if _level <= LEVELS["debug"]:
        _write("debug", event, facts)


def info(event: str, **facts: Any) -> None:
    if _level <= LEVELS["info"]:
        _write("info", event, facts)


def warning(event: str, **facts: Any) -> None:
    if _level <= LEVELS["warning"]:
        _write("warning", event, facts)


def error(event: str, *, exc_info: BaseException | None = None, **facts: Any) -> None:
    _write("error", event, {"exc_info": exc_info, **facts})


def warn_once_a_minute(event: str, cause: str, address: str, **facts: Any) -> None:
    """A warning about a client, at most once per cause and address (without port) in a minute."""
    if _is_due(cause, address):
        warning(event, cause=cause, address=address, **facts)


def fault_once_a_minute(event: str, fault: Exception, where: str, **facts: Any) -> None:
    """A fault of ours with its trace, at most once per kind and place in a minute: the client that
    meets it will try again at once, and the first trace says all that the thousandth would."""
    if _is_due(f"{type(fault).__name__}: {fault}", where):
        error(event, exc_info=fault, where=where, **facts)


def error_once_a_minute(event: str, reason: str, log: str) -> None:
    """An error of one log, at most once per reason in a minute: its readers will try again."""
    if _is_due(reason, log):
        error(event, log=log, reason=reason)


def _is_due(cause: str, where: str) -> bool:
    key = (cause, where)
    now_s = clock.monotonic_s()
    last_s = _said.get(key)
    if last_s is not None and now_s - last_s < ONCE_EVERY_S:
        return False
    if len(_said) >= REMEMBERED_CAUSES:
        _said.clear()
    _said[key] = now_s
    return True
