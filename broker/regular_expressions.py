"""Regular expressions that clients choose and the broker runs, in the syntax of RE2.

So the engine must need no more than linear time, whatever it is given: Python's own can be made to
think for years. `google-re2` is that engine, imported when the first expression comes. Its
automaton is asked only whether a text matches as a whole; to ask where costs it a thousandfold for
some expressions.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_INSTRUCTIONS = 10_000
"""Of the compiled expression: a text costs about as much as this at worst. An alternation of 300
topics with names of 30 letters is as long."""

MAX_CHARACTERS = 8_000
"""Of the expression. It is part of the key of a record, which holds four times as many bytes."""

SHOWN_CHARACTERS = 200


class InvalidExpression(ValueError):
    """No RE2, too large, or no engine installed. The text is the reason."""

    def __init__(self, expression: str, reason: str) -> None:
        super().__init__(reason)
        shown = expression[:SHOWN_CHARACTERS]
        self.expression = expression if shown == expression else f"{shown}..."
        """As much of it as is fit to be shown."""


MAX_WORK_AT_ONCE, MAX_WORK = 1_000_000, 1_000_000_000
"""Instructions of an expression times the characters of texts that peers have chosen, too, for one
text and for all: the worst of both takes some 30 ns for each. A prefix has ten instructions, an id
thirty characters."""


def matching(expression: str, texts: Iterable[str]) -> frozenset[str]:
    """The texts that an expression matches from end to end. Raises InvalidExpression."""
    match = _compiled(expression)[0].Match
    return frozenset(text for text in texts if match(text))


class BoundedMatch:
    """Whether an expression matches texts from end to end, which peers have chosen as well."""

    def __init__(self, expression: str) -> None:
        """Raises InvalidExpression."""
        self._expression = expression
        self._automaton, self._instructions = _compiled(expression)
        self._work = 0

    def __call__(self, text: str) -> bool:
        """Raises InvalidExpression where this text, or all so far, are too much work."""
        work = self._instructions * len(text)
        self._work += work
        if work > MAX_WORK_AT_ONCE or self._work > MAX_WORK:
            raise InvalidExpression(
                self._expression, f"{self._instructions} instructions are too many for so much text"
            )
        return bool(self._automaton.Match(text))


@lru_cache(maxsize=256)
def _compiled(expression: str) -> tuple[Any, int]:
    """A set of one automaton, and its instructions. Its `Match` gives the indexes of those that
    match: [0] or nothing."""
    try:
        re2 = import_module("re2")
    except ImportError as error:
        raise InvalidExpression(
            expression, f"the broker has no google-re2, which it needs for that ({error})"
        ) from None
    if len(expression) > MAX_CHARACTERS:
        raise InvalidExpression(
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
        raise InvalidExpression(expression, shown[:SHOWN_CHARACTERS]) from None
    except UnicodeEncodeError:
        raise InvalidExpression(expression, "it is not UTF-8") from None
    if instructions > MAX_INSTRUCTIONS:
        raise InvalidExpression(
            expression, f"it needs {instructions} instructions, {MAX_INSTRUCTIONS} are allowed"
        )
    automaton = re2.Set.FullMatchSet(options)
    automaton.Add(expression)
    automaton.Compile()
    return automaton, instructions
