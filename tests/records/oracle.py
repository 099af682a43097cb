"""kafka-python's own reader and writer of batches, as an opinion independent of ours."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # It reads its schemas through a function that newer Pythons announce the end of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

__all__ = ["DefaultRecordBatchBuilder", "LegacyRecordBatchBuilder", "MemoryRecords"]
