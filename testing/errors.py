"""What goes wrong with a broker of a test, rather than with what it was asked."""

from __future__ import annotations


class BrokerFailed(Exception):
    """The broker did not start, or has ended. The text says why, with the last lines it logged."""
