"""The positions of the fields of the record formats. All numbers are big-endian.

Any format
    0..7    base offset          formats 0 and 1: the entry's own offset, of its last record
    8..11   length               bytes that follow this field; the whole entry is 12 more
    16      magic                the number of the format

Formats 0 and 1, a message; a message with a codec is a wrapper around a compressed set
    0..7    offset               of a wrapper: the offset of its last message
    8..11   size                 bytes that follow: at least 14 in format 0 and 22 in format 1
    12..15  crc                  CRC-32 from byte 16 to the end of the message
    16      magic                0 or 1
    17      attributes           bits below
    18..25  timestamp (ms)       format 1 only; -1 for none
    18..    key                  int32 length, negative for null, and bytes; format 1 from byte 26
    then    value                the same; of a wrapper: the compressed set
    then    nothing              spare bytes are tolerated and mean nothing

Attributes of formats 0 and 1
    0..2    codec                0 none, 1 gzip, 2 snappy, 3 lz4
    3       timestamp type       format 1 only: 0 CreateTime, 1 LogAppendTime
    4..7    unused

Format 2, a batch
    0..7    base offset          of the first record as first written; kept by compaction
    8..11   length               at least 49
    12..15  leader epoch         set by the broker
    16      magic                2
    17..20  crc                  CRC-32C from byte 21 to the end of the batch
    21..22  attributes           bits below
    23..26  last offset delta    last offset = base offset + this
    27..34  base timestamp (ms)  record deltas are relative to it
    35..42  max timestamp (ms)   largest record timestamp, or the append time
    43..50  producer id          -1 for none
    51..52  producer epoch       -1 for none
    53..56  base sequence        -1 for none
    57..60  record count         records that are present
    61..    records              compressed as one stream when a codec is set

A broker may write bytes 0..15 without touching the checksum, and bytes 0..11 of the older formats.

Attributes of format 2
    0..2    codec                0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
    3       timestamp type       0 CreateTime, 1 LogAppendTime
    4       transactional
    5       control
    6       delete horizon       the base timestamp is a delete horizon; set by compaction only
    7..15   unused
"""

from __future__ import annotations

from struct import Struct

# Entries of any format.
LENGTH_POSITION = 8
MAGIC_POSITION = 16
ENTRY_OVERHEAD = 12
"""Bytes of an entry that its length field does not count."""
ENTRY_PREFIX = 17
"""Bytes that must be there to know an entry's size and format."""
MIN_ENTRY_LENGTH = 14
"""Smallest length field of any format: a format 0 message with null key and null value."""

# Formats 0 and 1. What differs between them is given as a pair, with the magic as its index.
MESSAGE_CRC_POSITION = 12
MESSAGE_CHECKED_POSITION = 16
"""First byte under the checksum."""
MESSAGE_ATTRIBUTES_POSITION = 17
MESSAGE_TIMESTAMP_POSITION = 18
"""In format 1 only."""
KEY_POSITIONS = (18, 26)
"""Position of the int32 length of the key."""
MIN_MESSAGE_LENGTHS = (14, 22)
"""Smallest length field: key and value null."""
MESSAGE_OVERHEADS = (26, 34)
"""Bytes of a message besides key and value; the value of a message with a null key begins here."""

MESSAGE_0 = Struct(">qiIbb")
"""A format 0 message up to its key: offset, size, crc, magic, attributes."""
MESSAGE_1 = Struct(">qiIbbq")
"""A format 1 message up to its key: as MESSAGE_0, then the timestamp."""

# Format 2.
HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
MIN_BATCH_LENGTH = HEADER_SIZE - ENTRY_OVERHEAD

BASE_OFFSET = 0
LENGTH = 1
LEADER_EPOCH = 2
MAGIC = 3
CRC = 4
ATTRIBUTES = 5
LAST_OFFSET_DELTA = 6
BASE_TIMESTAMP = 7
MAX_TIMESTAMP = 8
PRODUCER_ID = 9
PRODUCER_EPOCH = 10
BASE_SEQUENCE = 11
RECORD_COUNT = 12

Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of HEADER; the names above are its indexes."""

LEADER_EPOCH_POSITION = 12
CRC_POSITION = 17
CHECKED_POSITION = 21
"""First byte under the checksum."""
ATTRIBUTES_POSITION = 21
LAST_OFFSET_DELTA_POSITION = 23
BASE_TIMESTAMP_POSITION = 27
MAX_TIMESTAMP_POSITION = 35
PRODUCER_ID_POSITION = 43
PRODUCER_EPOCH_POSITION = 51
BASE_SEQUENCE_POSITION = 53
RECORD_COUNT_POSITION = 57

INT16 = Struct(">h")
INT32 = Struct(">i")
UINT32 = Struct(">I")
INT64 = Struct(">q")
ENTRY = Struct(">qi")
"""Offset and length of an entry of any format."""
BATCH_END = Struct(">q15xi")
"""Base offset and last offset delta of a batch."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
PRODUCER_BITS = CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
"""Attribute bits a producer's batch may show at all; the others are cleared."""

LOG_APPEND_TIME = 1

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

MIN_RECORD_SIZE = 7
"""Length, attributes, two deltas, two lengths and a header count of one byte each."""

assert HEADER.size == HEADER_SIZE
assert ENTRY.size == ENTRY_OVERHEAD == LENGTH_POSITION + INT32.size
assert ENTRY_PREFIX == MAGIC_POSITION + 1
assert ENTRY.size == MESSAGE_CRC_POSITION
assert MESSAGE_CRC_POSITION + UINT32.size == MESSAGE_CHECKED_POSITION == MAGIC_POSITION
assert MESSAGE_ATTRIBUTES_POSITION == MAGIC_POSITION + 1
assert MESSAGE_ATTRIBUTES_POSITION + 1 == MESSAGE_TIMESTAMP_POSITION
assert (MESSAGE_0.size, MESSAGE_1.size) == KEY_POSITIONS
assert (MESSAGE_TIMESTAMP_POSITION, MESSAGE_TIMESTAMP_POSITION + INT64.size) == KEY_POSITIONS
assert tuple(position + 2 * INT32.size for position in KEY_POSITIONS) == MESSAGE_OVERHEADS
assert tuple(size - ENTRY_OVERHEAD for size in MESSAGE_OVERHEADS) == MIN_MESSAGE_LENGTHS
assert MIN_MESSAGE_LENGTHS[0] == MIN_ENTRY_LENGTH
assert BATCH_END.size == LAST_OFFSET_DELTA_POSITION + INT32.size
assert LEADER_EPOCH_POSITION + INT32.size == MAGIC_POSITION
assert CRC_POSITION + UINT32.size == CHECKED_POSITION == ATTRIBUTES_POSITION
assert ATTRIBUTES_POSITION + INT16.size == LAST_OFFSET_DELTA_POSITION
assert LAST_OFFSET_DELTA_POSITION + INT32.size == BASE_TIMESTAMP_POSITION
assert BASE_TIMESTAMP_POSITION + INT64.size == MAX_TIMESTAMP_POSITION
assert MAX_TIMESTAMP_POSITION + INT64.size == PRODUCER_ID_POSITION
assert PRODUCER_ID_POSITION + INT64.size == PRODUCER_EPOCH_POSITION
assert PRODUCER_EPOCH_POSITION + INT16.size == BASE_SEQUENCE_POSITION
assert BASE_SEQUENCE_POSITION + INT32.size == RECORD_COUNT_POSITION
assert RECORD_COUNT_POSITION + INT32.size == HEADER_SIZE
