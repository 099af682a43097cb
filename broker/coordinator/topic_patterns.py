"""Subscriptions by a regular expression, in the syntax of RE2 (KIP-848).

A client chooses the expression and the broker runs it, for every topic there is. So the engine must
need no more than linear time, whatever it is given: Python's own can be made to think for years.
`google-re2` is that engine, imported when the first expression comes. Its automaton is asked only
whether a name matches as a whole; to ask where costs it a thousandfold for some expressions.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_INSTRUCTIONS = 10_000
"""Of the compiled expression: a name costs about as much as this at worst. An alternation of 300
topics with names of 30 letters is as long."""

MAX_CHARACTERS = 8_000
"""Of the expression. It is part of the key of a record, which holds four times as many bytes."""


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    """The names that an expression matches from end to end.

    Raises INVALID_REGULAR_EXPRESSION with the reason: no RE2, too large, or no engine installed.
    """
    match = _compiled(expression).Match
    return frozenset(name for name in names if match(name))


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:
    """A set of one automaton. Its `Match` gives the indexes of those that match: [0] or nothing."""
    try:
        re2 = import_module("re2")
    except ImportError:
        raise _refused(
            expression, "the broker has no google-re2 (pip install triglot[regex])"
        ) from None
    if len(expression) > MAX_CHARACTERS:
        raise _refused(
            expression, f"it has {len(expression)} characters, {MAX_CHARACTERS} are allowed"
        )
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        instructions = re2.compile(expression, options).programsize
    except re2.error as error:
        reason = error.args[0]
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise _refused(expression, shown[:200]) from None
    except UnicodeEncodeError:
        raise _refused(expression, "it is not UTF-8") from None
    if instructions > MAX_INSTRUCTIONS:
        raise _refused(
            expression, f"it needs {instructions} instructions, {MAX_INSTRUCTIONS} are allowed"
        )
    automaton = re2.Set.FullMatchSet(options)
    automaton.Add(expression)
    automaton.Compile()
    return automaton


def _refused(expression: str, reason: str) -> KafkaError:
    shown = expression if len(expression) <= 200 else f"{expression[:200]}..."
    return KafkaError(
        f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}.",
        code=ErrorCode.INVALID_REGULAR_EXPRESSION,
    )
