"""Builds a method or a data module from a stored configuration, such as that of a checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace

from lightning_ssl.checks import UserError
from lightning_ssl.data import DataModule
from lightning_ssl.methods import Method
from lightning_ssl.runs.arguments import check_arguments
from lightning_ssl.runs.errors import one_line, refusal, with_full_key
from lightning_ssl.trust import require_trusted
from lightning_ssl.untrusted import one_line as first_line


def build_method(config: dict[str, Any], trust: Sequence[str] = ()) -> Method:
    """Build the method of a configuration, with new weights. It names only code of the trusted modules (`trust.py`)."""
    method: Method = build(config, "model", trust)
    return method


def build_data(config: dict[str, Any], trust: Sequence[str] = ()) -> DataModule:
    """Build the data module of a configuration."""
    module: DataModule = build(config, "data", trust)
    return module


def build(config: dict[str, Any], key: Literal["model", "data"], trust: Sequence[str] = ()) -> Any:
    """Build one part of a configuration."""
    require_trusted(config.get(key) if key == "model" else (config.get(key) or {}).get("name"), key, trust)
    parser = ArgumentParser(exit_on_error=False)
    if key == "model":
        parser.add_subclass_arguments(Method, "model")
    else:
        parser.add_class_arguments(DataModule, "data")
    try:
        parsed = parser.parse_object({key: config[key]})
    except (argparse.ArgumentError, KeyError) as error:
        raise UserError(f"{key} of the configuration: {one_line(error)}") from error
    except Exception as error:  # a value that the parser does not expect
        raise UserError(f"{key} of the configuration: {first_line(error)}") from error
    try:
        return instantiate(parser, parsed)[key]
    except UserError as error:
        raise UserError(f"{key} of the configuration: {with_full_key(error, {key: config[key]})}") from error


def instantiate(parser: ArgumentParser, parsed: Namespace) -> Namespace:
    """Build the objects. The error is that of the class that refused its arguments."""
    try:
        if "model" in parsed:
            check_arguments("model", parsed.model)
        return parser.instantiate(parsed)
    except Exception as error:
        raise refusal(error) from error
