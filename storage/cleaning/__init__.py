"""Compaction: of every key only the newest record stays, and all offsets stay what they were.

`plan.plan_cleaning`   whether a log is worth it, and what is to be done: a `CleaningPlan`
`cleaning.Cleaning`    does it: reads the sources twice, writes `.cleaned` files
`offset_map`           the newest offset of each key, in bounded memory
`entries`              the sources, entry by entry and checked
`transactions`         which batches are of aborted transactions, which markers are still needed
`rewrite`              what stays of an entry
`merge`                small batches that have become neighbours
`output`               the new segment and its indexes

Nothing here knows a `Log`, but for `plan_cleaning`, which looks at one. A plan crosses a process
boundary as JSON, and the cleaning itself touches sealed segments by their paths and reads no more
of them than what the plan says. To put the result in place of the sources is somebody else's work.
"""
