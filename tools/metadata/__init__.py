"""`triglot metadata`: the state of a cluster and its changes, for people and machines.

facts      an image as plain values, and as lines
changes    one record of the log, likewise
actions    from parsed arguments to printed lines
"""
