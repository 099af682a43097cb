"""Expired delegation tokens are removed from the metadata, by whoever leads their log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from protocol.logdata.metadata import RemoveDelegationTokenRecord

if TYPE_CHECKING:
    from broker.metadata.changes import Changes
    from broker.metadata.controller_view import ControllerView
    from broker.security.delegation_tokens import DelegationTokens
    from storage.steps import Steps

AT_ONCE = 1000
"""Tokens that are removed at a time; the others wait for the next look."""


class TokenExpiry:
    """`look` is a periodic task."""

    def __init__(
        self, tokens: DelegationTokens, controller: ControllerView, changes: Changes
    ) -> None:
        self._tokens = tokens
        self._controller = controller
        self._changes = changes
        self._looking = False

    def look(self) -> None:
        """Remove what has ended, unless the last look has not ended itself."""
        if not self._looking and self._tokens.expired():
            self._looking = True
            self._changes.make(self._remove(), self._removed, self._failed)

    def _remove(self) -> Steps[list[str]]:
        gone = self._tokens.expired()[:AT_ONCE]
        if gone:
            records = [RemoveDelegationTokenRecord(token_id=one) for one in gone]
            yield from self._controller.append(records)
        return gone

    def _removed(self, gone: list[str]) -> None:
        self._looking = False
        logs.info("delegation tokens have expired", count=len(gone))

    def _failed(self, error: Exception) -> None:
        self._looking = False
        logs.error("expired delegation tokens can't be removed", reason=str(error))
