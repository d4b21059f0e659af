import logging
import warnings

import pytest


@pytest.fixture(autouse=True)
def quiet():
    """Silence Lightning's messages about hardware, workers and short epochs."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        yield
