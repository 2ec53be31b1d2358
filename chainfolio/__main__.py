"""`python -m chainfolio`: the command line."""

from __future__ import annotations

import sys

from chainfolio.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
