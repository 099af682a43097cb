"""The one place that holds the version; packaging reads it from here.

A constant, because asking importlib.metadata for it costs 37 ms at every start.
"""

VERSION = "0.1.0"
