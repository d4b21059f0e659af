"""A checkpoint runs no code and creates no path: classes come from this package and from trusted modules only."""

import functools
import io
import os
import re
import sys

import pytest
import torch
from helpers import small_fit

from lightning_ssl import AlphaCL, Direct
from lightning_ssl.app import cli
from lightning_ssl.app.commands import evaluate, export
from lightning_ssl.app.commands import import_bolts as bolts
from lightning_ssl.app.runs.restore import evaluation_data, restore_method
from lightning_ssl.base.trust import require_trusted

EVIL = "open('ran', 'w').close()\nimport torch\nclass M(torch.nn.Module):\n    pass\ndef f(*_):\n    open('ran', 'w')\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, first on the path, with a module that leaves a trace when it is imported."""
    (tmp_path / "evilmod.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("evilmod", "venv.__main__", "this", "antigravity"):
        sys.modules.pop(name, None)


@functools.cache
def weights():
    return AlphaCL(Direct(), backbone="resnet_tiny").state_dict()


def checkpoint(model, data=None):
    """A checkpoint in the layout of `fit`, with the weights of a small network."""
    config = {"model": model, "data": data or {"name": "shapes", "root": "data", "options": None}}
    ours = {"config": config, "version": "0.1.0"}
    torch.save({"state_dict": weights(), "global_step": 1, "lightning_ssl": ours}, "model.ckpt")
    return "model.ckpt"


def alpha(**arguments):
    return {"class_path": "lightning_ssl.AlphaCL", "init_args": {"backbone": "resnet_tiny", **arguments}}


# Text that is YAML is not parsed, so it is no class.
REFUSED = r"not trusted|expected one of AdaptiveNegative"
NESTED = {"class_path": "lightning_ssl.FromFamily", "init_args": {"family": {"class_path": "evilmod.M"}}}
HOSTILE = {
    "class": {"class_path": "evilmod.M"},
    "module that runs as a program": {"class_path": "venv.__main__.x"},
    "importance": alpha(importance={"class_path": "evilmod.M", "init_args": {}}),
    "importance as a string": alpha(importance="evilmod.M"),
    "function as importance": alpha(importance="evilmod.f"),
    "nested class": alpha(importance=NESTED),
    "yaml in a string": alpha(importance="{class_path: evilmod.M}"),
    "json in a string": alpha(importance='{"class_path": "evilmod.M"}'),
    "list": alpha(projector=[{"class_path": "evilmod.M"}]),
    "dotted key": {**alpha(), "init_args": {"importance.class_path": "evilmod.M"}},
    "dict_kwargs": {**alpha(), "dict_kwargs": {"importance": {"class_path": "evilmod.M"}}},
    "backbone": alpha(backbone="evilmod.M"),
    "backbone as a class": alpha(backbone={"class_path": "evilmod.M"}),
    "backbone of Python": alpha(backbone="this.s"),
    "spaces": alpha(backbone=" evilmod.M "),
    "through this package": alpha(backbone="lightning_ssl.app.cli.importlib.import_module"),
    "a function of this package": alpha(backbone="lightning_ssl.app.cli.main"),
    "an unknown argument": alpha(extra={"class_path": "evilmod.M"}),
}


@pytest.mark.parametrize(
    "model",
    [
        alpha(importance="notes"),
        alpha(importance=" notes"),
        alpha(optimization="notes"),
        alpha(projector="./notes"),
        alpha(importance={"class_path": "FromFamily", "init_args": {"family": "notes"}}),
        alpha(importance="[notes]"),
    ],
)
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_no_file_that_a_checkpoint_names_is_read(folder, model, kind):
    if kind == "file":
        (folder / "notes").write_text("class_path: evilmod.M\n")
    else:
        os.mkfifo(folder / "notes")
    with pytest.raises(ValueError, match=r"model.*notes.*: (it is also the name of a file|.*not trusted)|expected"):
        restore_method(checkpoint(model))
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("model", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("command", ["evaluate", "export", "load_from_checkpoint"])
def test_no_path_of_a_checkpoint_is_imported(folder, model, command, capsys):
    file, before = checkpoint(model), set(sys.modules)
    if command == "load_from_checkpoint":
        hparams = {**model.get("init_args", {}), **model.get("dict_kwargs", {}), "_class_path": model["class_path"]}
        torch.save({"state_dict": weights(), "hyper_parameters": hparams}, file)
        for source in (file, io.BytesIO((folder / file).read_bytes())):
            with pytest.raises(ValueError, match=REFUSED):
                AlphaCL.load_from_checkpoint(source)
    else:
        assert cli.main([command, file, *(["--format=safetensors"] if command == "export" else [])]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search(REFUSED, line)
        assert "model.ckpt" in line
    assert not {"evilmod", "venv.__main__", "this"} & (set(sys.modules) - before)
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == ["evilmod.py", "model.ckpt"]


def test_a_trusted_module_is_imported(folder, capsys):
    (folder / "mynets.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = torch.nn.Linear(3, 4)\n"
        "    def forward(self, x):\n        return self.layer(x.mean((2, 3)))\n"
    )
    model = alpha(backbone="mynets.Net")
    with pytest.raises(
        ValueError, match=r"^checkpoint='model.ckpt': model.backbone=mynets.Net: .*--trust mynets allows"
    ):
        restore_method(checkpoint(model))
    with pytest.raises(ValueError, match="weights do not fit the network"):  # it is built
        restore_method(checkpoint(model), trust=["mynets"])
    sys.modules.pop("mynets")


def test_the_working_directory_comes_last_for_a_trusted_module(folder, monkeypatch):
    (folder / "colorsys.py").write_text(EVIL)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(folder))])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with pytest.raises(ValueError, match="colorsys"):
        export.main([checkpoint(alpha(backbone="colorsys.M")), "--format=safetensors", "--trust=colorsys"])
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("module", ["", "a b", "../mine", "mine."])
def test_a_name_that_is_no_module_is_refused(folder, module):
    with pytest.raises(ValueError, match=r"trust=.*expected the name of a module"):
        export.main([checkpoint(alpha()), "--format=safetensors", f"--trust={module}"])


def test_a_module_that_is_imported_already_is_trusted_and_one_behind_it_is_not():
    require_trusted({"class_path": f"{__name__}.Own"}, "model")
    with pytest.raises(ValueError, match="not trusted"):
        require_trusted({"class_path": f"{__name__}.sys.exit"}, "model")


class Own:
    pass


@pytest.mark.parametrize("stored", ["weights", "view"])
def test_a_network_of_other_size_is_refused_before_memory_is_allocated(folder, stored, monkeypatch):
    """10⁹ hidden units would need 450 GB. A view of that shape needs four bytes in the file."""
    monkeypatch.setattr("lightning_ssl.networks.memory", lambda: 2**63)  # of this machine: it is never too small
    file = checkpoint(alpha(projector={"hidden": 10**9}))
    if stored == "view":
        content = torch.load(file, weights_only=True)
        content["state_dict"]["projector.0.weight"] = torch.zeros(1, 1).expand(10**9, 112)
        torch.save(content, file)
    with pytest.raises(
        ValueError, match=r"^checkpoint='model.ckpt': its weights do not fit .* instead of \(10{9}, 112\)"
    ):
        restore_method(file)


# ---------------------------------------------------------------------------------------------------------------------
# Data


def data_of(**settings):
    return {"data": {"name": "cifar10", "root": "data", "options": None, **settings}}


def test_the_root_of_a_checkpoint_is_not_created(folder):
    for root in ("stolen", "/stolen-by-a-test", "../stolen"):
        file = checkpoint(alpha(), data_of(root=root)["data"])
        with pytest.raises(ValueError, match=r"data.root='.*stolen.*': cifar10 is not complete there; --root FOLDER"):
            evaluate.main([file])
    assert not (folder / "stolen").exists()
    assert not (folder.parent / "stolen").exists()


@pytest.mark.parametrize(("name", "module"), [("evilmod.f", "evilmod"), ("hf:owner/name", "datasets")])
def test_the_data_set_of_a_checkpoint_is_not_imported(folder, name, module):
    with pytest.raises(ValueError, match=rf"not trusted; --trust {module}"):
        evaluation_data(data_of(name=name))
    assert not (folder / "ran").exists()
    with pytest.raises(ValueError, match="data='': data must be one of"):
        evaluation_data({})


# ---------------------------------------------------------------------------------------------------------------------
# Other commands that read checkpoints


def test_resuming_imports_nothing_that_a_checkpoint_names(folder, capsys):
    words = ["fit", *small_fit("SimCLR", 32, 16), "--trainer.max_epochs=1", "--name=run"]
    words += ["--knn=null", "--probe=null", "--spectrum=null"]
    assert cli.main(words) == 0
    (file,) = (folder / "runs/run/checkpoints").glob("*.ckpt")
    content = torch.load(file, weights_only=True)
    content["lightning_ssl"]["config"]["model"] = HOSTILE["importance"]
    content["hyper_parameters"] |= {"_class_path": "evilmod.M", "_instantiator": "evilmod.f"}
    torch.save(content, file)
    before = set(sys.modules)
    assert cli.main([*words, "--resume=runs/run", "--trainer.max_epochs=2"]) == 0
    assert "evilmod" not in set(sys.modules) - before
    assert cli.main(["report", "runs"]) == 0
    assert "evilmod" not in set(sys.modules) - before


def test_an_import_imports_nothing_that_a_checkpoint_names(folder):
    hparams = {
        "_class_path": "evilmod.M",
        "_instantiator": "evilmod.f",
        "dataset": "evilmod.f",
        "optimizer": "evilmod.f",
    }
    torch.save({"state_dict": {}, "hyper_parameters": hparams}, "bolts.ckpt")
    with pytest.raises(ValueError, match="state_dict"):
        bolts.main(["bolts.ckpt"])
    assert "evilmod" not in sys.modules
