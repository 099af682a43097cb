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


MAX_WORK = 100_000_000
"""Instructions of an expression times the characters of texts that peers have chosen, too: the
worst of both takes some 30 ns for each. A prefix has ten instructions, an id thirty characters."""


def matching(
    expression: str, texts: Iterable[str], *, max_work: int | None = None
) -> frozenset[str]:
    """The texts that an expression matches from end to end. Raises InvalidExpression, also where
    it would be more work than that."""
    automaton, instructions = _compiled(expression)
    if max_work is not None:
        texts = list(texts)
        if instructions * sum(map(len, texts)) > max_work:
            raise InvalidExpression(
                expression, f"{instructions} instructions are too many for so much text"
            )
    match = automaton.Match
    return frozenset(text for text in texts if match(text))


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
