"""The content of the `records` field of Produce and Fetch, and of the files of a log.

Kafka has written records in three formats. The number of a format is called its magic.

0  One entry per message: offset, size, CRC-32, key, value. No timestamp, no headers. A compressed
   entry (a wrapper) holds a whole set of inner messages with absolute offsets. Clients up to 0.9.
1  Format 0 with a timestamp in each message, and relative offsets inside wrappers, so that a
   broker can place a compressed set without opening it (KIP-31, KIP-32). Clients of 0.10.
2  One header of 61 bytes for a batch of records, CRC-32C, deltas as varints, record headers,
   producer ids for idempotence and transactions (KIP-98). Clients from 0.11 on.

All three keep an offset in bytes 0..7, a length in bytes 8..11 and the magic in byte 16, so a log
may mix them and a reader can step over entries it does not open (`walk`).

layout       where each field of each format is
batch        a format 2 batch seen in place, without a copy
legacy       messages of formats 0 and 1, seen in place, read and made
record       the records inside a batch, for the few paths that must look at them
walk         from entry to entry through a buffer of any format
validate     what a topic asks of produced records, and the checks of a batch
prepare      from what a producer sent, in any format, to what a log can append
rebuild      making a produced set anew where it cannot stay as it came
compact      which keys records have, and entries with fewer records, for compaction
loops        what has to go through every record or message: scans and conversions, in Python
key_loops    what compaction has to go through, in Python
starts       where records begin, for whoever reads many at once; in Python or in C
_loops       the same in C, where it could be built
transcode    whichever of the two is there
builder      making batches
compression  gzip, snappy, lz4 and zstd with a bound on what they may expand to
lz4_frame    the header of an lz4 frame, which format 0 gets wrong
crc          the two checksums, by the fastest means present
errors       the two ways in which stored or produced bytes can be wrong

Importing this package imports none of them.
"""
