"""The wheel carries a .pth file: it makes `import torchvision` work in any order of imports (_torchvision_guard.py)."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PTH = Path("lightning_ssl/torchvision_guard.pth")


class BuildWithPth(build_py):
    """Puts the .pth file beside the package, where Python reads it at start-up."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # `make` calls `write_pth` after an editable installation
            self.copy_file(str(PTH), str(Path(self.build_lib) / f"lightning_ssl_{PTH.name}"))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib) / f"lightning_ssl_{PTH.name}")]


setup(cmdclass={"build_py": BuildWithPth})
