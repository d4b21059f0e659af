"""The files of configs/ and sweeps/ that are installed with the package, found by a short name.

    lightning-ssl fit --config quickstart --config method/direct     configs/quickstart.yaml, configs/method/direct.yaml
    lightning-ssl sweep table1                                       sweeps/table1.yaml

The suffix .yaml and the folder configs/ or sweeps/ can be left out. A file of the working directory is used first. In a
source checkout `lightning_ssl/configs` and `lightning_ssl/sweeps` are symbolic links; a wheel contains the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import lightning_ssl
from lightning_ssl.base.checks import MAX_SHOWN, UserError, cut, did_you_mean

PACKAGE = Path(lightning_ssl.__file__).parent
Folder = Literal["configs", "sweeps"]
SHOWN = 8  # names in an error


def find(folder: Folder, name: str) -> str:
    """The path of a file, from its path or its short name. An unknown name is a UserError."""
    if not name.strip():
        raise UserError(f"{folder.removesuffix('s')}={name!r}: expected the name of a file")
    given = Path(name)
    inner = Path(*given.parts[1:]) if given.parts[:1] == (folder,) else given
    parents = (Path(), Path(folder), PACKAGE / folder)
    for path in (given, *(parent / inner for parent in parents)):
        for file in (path, path.with_name(f"{path.name}.yaml")) if path.name else ():
            if file.is_file():
                return str(file)
    known = names(folder)
    what = "a folder, expected a file" if given.is_dir() else "no such file"
    short = inner.as_posix().removesuffix(".yaml")
    hint = did_you_mean(short, known, cutoff=0.5) or f"packaged files: {', '.join(known[:SHOWN])}, …"
    raise UserError(f"{folder.removesuffix('s')}={cut(name, MAX_SHOWN)}: {what}; {hint}")


def names(folder: Folder) -> list[str]:
    """The short names of the packaged files, such as `method/direct`."""
    root = PACKAGE / folder
    return sorted(file.relative_to(root).with_suffix("").as_posix() for file in root.rglob("*.yaml"))
