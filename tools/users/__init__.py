"""`triglot users`: users who authenticate by SCRAM, and their passwords."""
