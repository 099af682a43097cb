"""The command line: `triglot serve`, and the commands that look at brokers and directories."""
