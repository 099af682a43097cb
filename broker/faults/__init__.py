"""Faults that a test asks for, on the real broker. Nothing of this is imported unless a start is
told `--testing`.

    engine         which request meets which fault: rules and counters, nothing else
    places         topics and partitions of a request; an answer made of two
    refusal        how a request meets an error: what is refused, and what is still to be asked
    dispatch       handlers with the faults before and behind them
    fetches        errors in answers to Fetch
    held           a result on its way to an answer
    conversations  the last requests as text
    clock          clocks and timers that a test moves ahead
    events         rebalances and elections on demand
    files          a disk with faults
    interface      what the control port serves: a path and JSON in, JSON out
    port           the control port
    injection      all of it, made together
    proxy/         the same in front of any other broker
"""
