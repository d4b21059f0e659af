"""`python -m lightning_ssl.labs NAME [--flags]`; NAME may be `list` or `all`."""

import sys

from lightning_ssl.labs.lab import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], prog="python -m lightning_ssl.labs"))
