"""Builds a method or a data module from a stored configuration, such as that of a checkpoint."""

from __future__ import annotations

import argparse
from typing import Any, Literal

from jsonargparse import ArgumentParser

from lightning_ssl.data import DataModule
from lightning_ssl.methods import Method
from lightning_ssl.runs.errors import one_line


def build_method(config: dict[str, Any]) -> Method:
    """Build the method of a configuration, with new weights."""
    method: Method = build(config, "model")
    return method


def build_data(config: dict[str, Any]) -> DataModule:
    """Build the data module of a configuration."""
    module: DataModule = build(config, "data")
    return module


def build(config: dict[str, Any], key: Literal["model", "data"]) -> Any:
    """Build one part of a configuration."""
    parser = ArgumentParser(exit_on_error=False)
    if key == "model":
        parser.add_subclass_arguments(Method, "model")
    else:
        parser.add_class_arguments(DataModule, "data")
    try:
        parsed = parser.parse_object({key: config[key]})
    except (argparse.ArgumentError, KeyError) as error:
        raise ValueError(f"{key} of the configuration: {one_line(error)}") from error
    return parser.instantiate(parsed)[key]
