"""One line out of what Spark raises: thousands of characters in which two languages nest.

Spark's exceptions are told from their text. The classes differ between a session of this process
and Spark Connect, and the reason is somewhere inside: a failure of ours that a task or a sink
raised, or else the line that tells most.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pipeline.errors import Failure, NotInstalled, SparkFailed, find

if TYPE_CHECKING:
    from pathlib import Path

LOG_END_BYTES = 65_536
"""How much of a log is looked at; the reason is at its end."""
LONGEST_LINE = 400

_MISSING_MODULE = re.compile(r"(?:ModuleNotFound|Import)Error: (No module named '[^']+')")
_UNRESOLVED = re.compile(r"^\s*:: ([\w.-]+#[\w.-]+;[\w.-]+): not found", re.MULTILINE)
_RAISED = re.compile(
    r"^(?:Caused by: |: )?((?:[\w$]+\.)*[\w$]*(?:Error|Exception))(?:: (\S.*))?$", re.MULTILINE
)
_NO_JVM = re.compile(
    r"^(.+)\nError: Could not create the Java Virtual Machine"
    r"|^(?:Error occurred during initialization of VM\n|Error: )(.+)",
    re.MULTILINE,
)

_WRAPPERS = (
    "Py4JError",
    "Py4JJavaError",
    "PythonException",
    "SparkException",
    "StreamingQueryException",
    "SparkRuntimeException",
)
"""They say that something failed, and carry what did."""

ADVICE = (
    ("java.lang.OutOfMemoryError", "give it more memory: --conf spark.driver.memory=4g"),
    ("No space left on device", "make room on the disk"),
    ("Python worker exited unexpectedly", "a Python worker died; out of memory?"),
)


def translated(error: BaseException, log: Path | None) -> Failure:
    """The failure that it stands for; SparkFailed if it is none of ours, which names the log."""
    text = _text(error)
    failure = find(text)
    if failure is not None:
        return failure
    module = _MISSING_MODULE.search(text)
    if module is not None:
        return NotInstalled(
            f"an executor cannot import what the job needs: {module[1]}: install "
            "triglot[pipeline] for the Python that runs Spark's tasks (PYSPARK_PYTHON)"
        )
    if "JAVA_GATEWAY_EXITED" in text and log is not None:
        return SparkFailed(f"Spark did not start: {_start_failure(_end(log))}{_see(log)}")
    advice = next((advice for symptom, advice in ADVICE if symptom in text), None)
    line = f"Spark failed: {telling_line(text)}"
    return SparkFailed(f"{line}; {advice}{_see(log)}" if advice else f"{line}{_see(log)}")


def telling_line(text: str) -> str:
    """The innermost exception with something to say; the first line where there is none."""
    raised = [
        (name.rpartition(".")[2], message)
        for name, message in _RAISED.findall(text)
        if not message.endswith("Traceback (most recent call last):")
    ]
    told = [found for found in raised if found[0] not in _WRAPPERS]
    said = [message for name, message in raised if message and not name.startswith("Py4J")]
    if told:
        line = ": ".join(filter(None, told[-1]))
    elif said:
        line = said[-1]
    else:
        line = next((line for line in text.splitlines() if line.strip()), "no reason given")
    line = line.strip()
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}..."


def _text(error: BaseException) -> str:
    """Of an exception and of what it came from; Spark keeps the stack of its JVM apart."""
    parts = []
    seen: set[int] = set()
    next_: BaseException | None = error
    while next_ is not None and id(next_) not in seen:
        seen.add(id(next_))
        try:
            parts.append(f"{type(next_).__module__}.{type(next_).__name__}: {next_}")
        except Exception:  # to say what it is, it asks a JVM that may be gone
            parts.append(type(next_).__name__)
        parts.append(str(getattr(next_, "_stackTrace", "") or ""))
        next_ = next_.__cause__ or next_.__context__
    return "\n".join(parts)


def _start_failure(log: str) -> str:
    unresolved = sorted(set(_UNRESOLVED.findall(log)))
    if unresolved:
        packages = ", ".join(name.replace("#", ":").replace(";", ":") for name in unresolved)
        return f"cannot find {packages} in any repository that is configured"
    refused = _NO_JVM.search(log)
    if refused is not None:
        return (refused[1] or refused[2]).strip()
    return telling_line(log.replace('Exception in thread "main" ', "Caused by: "))


def _end(log: Path) -> str:
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - LOG_END_BYTES))
            return stream.read(LOG_END_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _see(log: Path | None) -> str:
    return f" (Spark's own words: {log})" if log is not None else ""
