"""`python -m reef_ref.cli`."""

import sys

from reef_ref.cli import main

if __name__ == "__main__":
    sys.exit(main())
