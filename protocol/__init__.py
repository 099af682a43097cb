"""The wire, with no I/O: bytes in, typed messages out, and back.

errors      the error codes, and the two exceptions everything here raises
primitives  varints, strings, lengths and tag sections over (buffer, position)
schema      the vocabulary in which messages are declared; fields.py holds its field functions
compiler    a declaration and a version into a flat function, at first use; decoding.py and
            encoding.py write the two kinds
reference   the same by walking the fields, slowly: the oracle in tests
frame       bytes into frames
header      what stands before each request and response
connection  one client's conversation: requests in, responses in their order out
registry    every API: key, name, versions, where its messages are
eras        which error code a client of an older age is told instead
messages    one module per API: request and response, all versions
records     the record formats inside Produce and Fetch, and in the log

Nothing is imported here, so importing a part costs that part only.
"""
