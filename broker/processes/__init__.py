"""Several processes that serve one data directory: `triglot serve --processes N`.

starting  the supervisor's side: what they share, taken before there is any of them
process   one of them, from its fork to its end
internal  their connections to each other
"""
