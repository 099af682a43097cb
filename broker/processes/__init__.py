"""Several processes that serve one data directory: `triglot serve --processes N`.

starting  the supervisor's side: what they share, taken before there is any of them
serving   what a forked process does
process   one of them: what all have in common; leading and following are the two kinds
internal  their connections to each other
handover  what goes along with a partition that moves from one to another
settling  what one process has left of transactions, before several begin
console   the one console, which the supervisor keeps beside them
"""
