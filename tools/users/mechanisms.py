"""The mechanisms for which users have credentials (KIP-554)."""

from __future__ import annotations

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
