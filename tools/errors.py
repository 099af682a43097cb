"""The failure of a command that was asked for what cannot be done."""

from __future__ import annotations


class NotDone(Exception):
    """Why a command could not be done, in one sentence for the user."""
