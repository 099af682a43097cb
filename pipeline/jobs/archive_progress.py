"""What an archive tells of a micro-batch: files, and what is counted besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.jobs.range_runs import batch_done

if TYPE_CHECKING:
    from pipeline.outcome import Watch
    from pipeline.spark.range_query import Committed


def telling(watch: Watch) -> Committed:
    """What tells a watch of each micro-batch that is committed."""

    def committed(number: int, results: list[dict[str, Any]], seconds: float) -> None:
        details = {
            "files": sum(len(facts.get("files", ())) for facts in results),
            "bytes written": sum(facts.get("file_bytes", 0) for facts in results),
        }
        if any("newest" in facts for facts in results):
            details = {"keys merged": sum(facts.get("newest", 0) for facts in results)}
        dead_letters = sum(facts.get("dead_letters", 0) for facts in results)
        if dead_letters:
            details["dead letters"] = dead_letters
        watch.batch(batch_done(number, results, seconds, details))

    return committed
