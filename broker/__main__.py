"""`python -m broker`: the command line of a checkout."""

from broker.cli import main

raise SystemExit(main())
