"""`python -m pipeline`: the pipeline's command line in a checkout."""

from pipeline.cli import main

raise SystemExit(main())
