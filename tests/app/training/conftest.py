from helpers.training import quiet  # noqa: F401
