"""Looking at files of a data directory from outside: what is damaged, what is in them, repair.

`directory_check.check`     goes through a directory, a partition or a file and yields findings
`dump`                      prints any file readably, line by line
`repair`                    puts right what can be, and sets aside what is cut out

Nothing here serves a client. It reads directories of any Apache Kafka from 0.8 on as well as ours,
and it believes no file: lengths are claims.
"""
