"""Subscriptions by a regular expression, in the syntax of RE2 (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import regular_expressions
from broker.regular_expressions import InvalidExpression
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    """The names that an expression matches from end to end.

    Raises INVALID_REGULAR_EXPRESSION with the reason: no RE2, too large, or no engine installed.
    """
    try:
        return regular_expressions.matching(expression, names)
    except InvalidExpression as error:
        shown = f"SubscribedTopicRegex `{error.expression}`"
        raise KafkaError(
            f"{shown} is not a valid regular expression: {error}.",
            code=ErrorCode.INVALID_REGULAR_EXPRESSION,
        ) from None
