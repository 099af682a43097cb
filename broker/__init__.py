"""The broker: sockets, time and logging around the floors below.

    cli, server            start and stop
    connection, sender     one client: bytes in and out around protocol.connection
    dispatch, handlers     which handler answers which API; one file per API
    topics, partition      what exists; a log with those who wait for it
    appends, durability    one write and one sync per loop turn
    waiting, fetch_sessions   fetches that wait; incremental fetches (KIP-227)

The life of a produced record and of a fetch is told in docs/architecture.md.
"""
