"""The messages: one file per API, its request and its response in every version.

Each file opens with what the API is for and what its versions changed; a version that is not
listed changed nothing that can be noticed. Field names are Kafka's in snake case and the order of
fields is the order on the wire. A file imports nothing but `protocol.schema`, and is itself
imported when its API is first met (`protocol.registry`).

`refused(request, code)` in each file makes the answer to a request that fails as a whole. Where
the response has no place for such an error, or had none in an older version, the code is repeated
in every entry.
"""
