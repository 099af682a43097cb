"""From data directory to byte.

`data_dir.DataDirectory`   one folder with every partition in it: lock, identity, checkpoints
`topics.TopicStore`        which topics there are, apart from what lies on the disk
`log.Log`                  one partition: appends, reads, rolls, syncs
`segment.Segment`          one file of batches with its `offset_index` and `time_index`
`scan.Scan`                from header to header through such a file
`recovery.open_log`        from files to a Log, after a clean stop and after a crash
`producers`, `epochs`      what a partition remembers beside its batches
`timestamps`               from a point in time to an offset
`cleaning`                 compaction, of sealed segments and without a log
`slices.FileSlice`         the answer to a read: bytes that are sent without being looked at
`syncing`                  what has to reach the disk before an acknowledgement
`checkpoints`, `identity`  the small text files
`layout`                   names of folders and files
`inspection`               check, dump and repair of a directory that nobody serves
`filesystem`               the only door to the disk

A log knows batches, not requests. Nothing here reads a clock, knows a network or logs a line:
time and random ids come in as arguments, and what was found goes out as values.
"""
