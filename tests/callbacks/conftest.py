import logging
import warnings

import pytest


@pytest.fixture(autouse=True)
def quiet():
    """Lightning tells of hardware, workers and short epochs; none of it is tested here."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        yield
