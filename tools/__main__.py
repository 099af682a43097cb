"""`python -m tools`: the command line of a checkout."""

from tools.cli import main

raise SystemExit(main())
