"""The wire, with no I/O: bytes in, typed messages out, and back.

errors      the error codes, and the two exceptions everything here raises
primitives  varints, strings, arrays and tag sections over (buffer, position)
schema      the vocabulary in which messages are declared
compiler    a declaration and a version into a flat decoder or encoder, at first use
reference   the same by walking the fields, slowly: the oracle in tests
messages    one module per API: request and response, all versions
records     the record formats inside Produce and Fetch, and in the log

Nothing is imported here, so importing a part costs that part only.
"""
