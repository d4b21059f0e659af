"""`python -m lightning_ssl.cli`, as sweep files of older versions start the program."""

import sys

from lightning_ssl.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
