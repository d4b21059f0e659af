"""`python -m lightning_ssl` is `lightning-ssl`."""

import sys

from lightning_ssl.app.cli import main

sys.exit(main())
