"""A checkpoint from which Lightning cannot resume is refused in one line, and its run folder stays as it is."""

import copy
import logging
import os
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_ssl import cli
from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.runs.folder import RunFolder
from lightning_ssl.runs.resumable import loop_counters, require_resumable

FLAGS = [
    "--model=SimCLR", "--model.backbone=resnet_tiny", "--model.projector.hidden=8", "--model.projector.out=8",
    "--data.batch_size=16", '--data.options={"train_images": 64, "test_images": 16}', "--trainer.max_epochs=2",
    "--trainer.accelerator=cpu", "--trainer.max_time=00:01:00:00", "--checkpoint.every_n_steps=3", "--knn=null",
    "--spectrum=null", "--importance_monitor=null",
]  # fmt: skip
BATCHES = 4  # of an epoch
STOP = {"class_path": "EarlyStopping", "init_args": {"monitor": "online/top1", "mode": "max"}}
PROBE = "OnlineProbe{'name': 'online'}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run folder of two epochs, as if it had been killed after step 7, within the second epoch."""
    top = tmp_path_factory.mktemp("runs")
    assert cli.main(["fit", *FLAGS, "--checkpoint.keep=9", "--runs", str(top), "--name", "run"]) == 0
    run = RunFolder(top / "run")
    for file in run.step_checkpoints():
        if file.name != "step-00000006.ckpt":
            file.unlink()
    run.update_summary(status="running")
    return run


@pytest.fixture
def stopped(trained, tmp_path):
    """A copy of that folder."""
    shutil.copytree(trained.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture(scope="module")
def parts():
    return Configuration.parse(FLAGS).build()


def resume(run, *flags):
    keep = ["--checkpoint.keep=9", "--runs", str(run.path.parent), "--name", run.path.name]
    return cli.main(["fit", *FLAGS, *keep, *flags])


def edit(run, change):
    """Change the content of the checkpoint of a run."""
    (file,) = run.step_checkpoints()
    content = torch.load(file, weights_only=True)
    change(content)
    torch.save(content, file)
    return file


def fit_loop(content):
    return content["loops"]["fit_loop"]


def adam(content):
    return content["optimizer_states"][0]


def schedule(content):
    return content["lr_schedulers"][0]


def recorder(content):
    return content["callbacks"]["Recorder"]


def probe(content):
    return content["callbacks"][PROBE]["probe"]


WRONG = [
    (lambda c: c.pop("loops"), "it has no loops"),
    (lambda c: c.update(loops={}), "loops.fit_loop=None: expected counters of Lightning's loops"),
    (lambda c: c.update(loops={"fit_loop": {}}), "loops.fit_loop.*progress=None: expected the keys"),
    (lambda c: fit_loop(c).update(epoch_progress=7), "loops.fit_loop.epoch_progress=7: expected the keys total, curr"),
    (lambda c: fit_loop(c)["epoch_progress"]["current"].update(ready="x"), "current.ready='x': expected a whole"),
    (lambda c: fit_loop(c)["epoch_progress"]["current"].update(ready=True), "current.ready=True: expected a whole n"),
    (lambda c: fit_loop(c)["epoch_progress"]["current"].update(ready=-1), "current.ready=-1: expected a whole number"),
    (lambda c: fit_loop(c)["epoch_progress"]["current"].update(reset=1), "current={.*: expected the keys"),
    (lambda c: fit_loop(c)["epoch_loop.batch_progress"].update(is_last_batch=3), "is_last_batch=3: expected true or f"),
    (lambda c: fit_loop(c).update({"epoch_loop.automatic_optimization.optim_progress": []}), r"optim_progress=\[\]"),
    (lambda c: fit_loop(c).update({"epoch_loop.state_dict": 3}), "epoch_loop.state_dict=3: expected a mapping"),
    (lambda c: fit_loop(c)["epoch_loop.state_dict"].update(_batches_that_stepped=None), "_batches_that_stepped=None"),
    (lambda c: fit_loop(c)["state_dict"].update(combined_loader=7), "combined_loader=7: expected the position"),
    (lambda c: fit_loop(c)["state_dict"].update(combined_loader=[7]), "combined_loader=7: expected the keys epoch, b"),
    (lambda c: c.update(DataModule=[1]), r"DataModule=\[1\]: expected the keys epoch, batch"),
    (lambda c: c.update(DataModule={"epoch": 0, "batch": 99}), "saved at batch 99 of an epoch, and an epoch has 4"),
    (lambda c: c.pop("pytorch-lightning_version"), "pytorch-lightning_version=None: expected a version"),
    (lambda c: c.update({"pytorch-lightning_version": "newest"}), "'newest': expected a version of Lightning"),
    (lambda c: c.update(optimizer_states=3), "it has no optimizer_states"),
    (lambda c: c.update(optimizer_states=[]), "its optimizer has no parameter groups, that of model.optim"),
    (lambda c: c.update(optimizer_states=[7]), r"optimizer_states=\[7\]: expected a list of mappings"),
    (lambda c: c.update(optimizer_states=[{"param_groups": [1]}]), "its optimizer has no parameter groups"),
    (lambda c: adam(c)["param_groups"][0].pop("params"), r"has \? parameters with betas"),
    (lambda c: adam(c)["param_groups"][0].update(params=["x"] * len(adam(c)["param_groups"][0]["params"])), "params="),
    (lambda c: adam(c)["param_groups"][0]["params"].__setitem__(0, torch.zeros(2)), r"params=\[tensor"),
    (lambda c: adam(c)["param_groups"][0].update(lr="fast"), r"param_groups\[0\].lr='fast': expected a finite number"),
    (lambda c: adam(c)["param_groups"][0].update(betas=(0.9,)), r"betas=\(0.9,\): expected 2 values"),
    (lambda c: adam(c).update(state=[]), r"optimizer_states.state=\[\]: expected tensors by the number"),
    (lambda c: adam(c)["state"].update(x={}), "optimizer_states.state='x': expected a number below"),
    (lambda c: adam(c)["state"].update({0: 7}), r"state\[0\]=7: expected the keys step, exp_avg, exp_avg_sq"),
    (lambda c: adam(c)["state"][0].pop("exp_avg"), r"state\[0\]={.*: expected the keys step"),
    (lambda c: adam(c)["state"][0].update(exp_avg=torch.zeros(3)), r"exp_avg.shape=\(3,\): expected \(16, 3, 3, 3\)"),
    (lambda c: adam(c)["state"][0].update(exp_avg=torch.zeros(1).expand(16, 3, 3, 3)), "expected a tensor with"),
    (lambda c: adam(c)["state"][0].update(exp_avg=7), "exp_avg: expected a tensor with its values, not int"),
    (lambda c: adam(c)["state"][0].update(step=torch.zeros(16)), r"step.shape=\(16,\): expected \(\)"),
    (lambda c: adam(c)["state"][0].update(exp_avg=torch.zeros(16, 3, 3, 3).bool()), "exp_avg.dtype=torch.bool"),
    (lambda c: c.update(lr_schedulers=[7]), r"lr_schedulers=\[7\]: expected a list of mappings"),
    (lambda c: c.update(lr_schedulers=[]), r"lr_schedulers=\[\]: expected one"),
    (lambda c: schedule(c).pop("last_epoch"), "lr_schedulers has no last_epoch"),
    (lambda c: schedule(c).update(last_epoch="x"), "lr_schedulers.last_epoch='x': expected a whole number"),
    (lambda c: schedule(c).update(base_lrs=[0.1, 0.1]), r"base_lrs=\[0.1, 0.1\]: expected 1 values"),
    (lambda c: schedule(c).update(step=3), "lr_schedulers='step': expected the name of a value"),
    (lambda c: schedule(c).update(optimizer={"a": 1}), "lr_schedulers.optimizer={'a': 1}: expected a plain value"),
    (lambda c: schedule(c).update(lr_lambdas=7), "lr_lambdas=7: expected a list without arguments"),
    (lambda c: c.update(callbacks=[]), "it has no callbacks"),
    (lambda c: c["callbacks"].update(Recorder=7), "callbacks.Recorder=7: expected a mapping"),
    (lambda c: c["callbacks"].update(Recorder=torch.zeros(2)), r"callbacks.Recorder=tensor.*: expected a mapping"),
    (lambda c: c["callbacks"].update(Recorder={"x": 1}), "callbacks.Recorder={'x': 1}: expected the keys rows, "),
    (lambda c: recorder(c).update(rows="all"), "callbacks.Recorder.rows='all': expected a whole number"),
    (lambda c: recorder(c).update(elapsed=float("nan")), "elapsed=nan: expected a finite number"),
    (lambda c: c["callbacks"].update(Timer={"time_elapsed": 3}), "Timer.time_elapsed=3: expected the keys train"),
    (lambda c: c["callbacks"].update({PROBE: {"probe": 7}}), "={'probe': 7}: expected the keys probe, sums, epoch"),
    (lambda c: c["callbacks"][PROBE].update(sums=torch.zeros(4)), r"sums.shape=\(4,\): expected \(3,\)"),
    (lambda c: probe(c).update(weight=torch.zeros(3, 112)), r"weight.shape=\(3, 112\): expected \(10, 112\)"),
    (lambda c: probe(c).update(features=torch.zeros(5, 112), labels=torch.zeros(4).long()), "expected 5 labels"),
    (lambda c: probe(c).update(optimizer={}), "its optimizer has no parameter groups, that of the probe has 1"),
    (lambda c: c.update(global_step="many"), "global_step='many': expected a whole number"),
    (lambda c: c.update(state_dict=[1]), r"state_dict=\[1\]: expected weights by name"),
    (lambda c: c["state_dict"].pop("backbone.conv1.weight"), "backbone.conv1.weight is missing$"),
    (lambda c: c["state_dict"].clear(), r"is missing; .*; .* is missing \(\d+ of \d+ weights differ\)$"),
    (lambda c: c["state_dict"].update(x=torch.zeros(1)), "x is not in the network$"),
    (lambda c: c["lightning_ssl"].update(config=[1]), r"config=\[1\]: expected a mapping"),
    (lambda c: c.clear(), "expected one written by `lightning-ssl fit`"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "line"), WRONG)
def test_a_checkpoint_of_another_shape_is_refused(stopped, parts, change, line):
    file = edit(stopped, change)
    with pytest.raises(ValueError, match=rf"^checkpoint='.*step-00000006.ckpt': .*{line}") as refused:
        require_resumable(file, parts, BATCHES)
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


def content_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize("change", [WRONG[1][0], WRONG[35][0], WRONG[30][0], WRONG[45][0]])
@pytest.mark.parametrize("by_path", [False, True])
def test_a_refused_checkpoint_leaves_the_folder_as_it_is(stopped, change, by_path, capsys):
    edit(stopped, change)
    before = content_of(stopped.path)
    assert resume(stopped, *(["--resume", str(stopped.path)] if by_path else [])) == 2
    assert capsys.readouterr().err.startswith("lightning-ssl: checkpoint='")
    assert content_of(stopped.path) == before


def test_the_examples_of_the_loops_do_not_ask_for_the_ranks_of_a_job(monkeypatch):
    """Lightning refuses `--ntasks` of SLURM where a Trainer is made that could be a rank of the job."""
    variables = {"NTASKS": "2", "JOB_ID": "10", "JOB_NAME": "train", "PROCID": "0", "LOCALID": "0", "NNODES": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert "epoch_progress" in loop_counters.__wrapped__()


def test_the_check_of_a_checkpoint_prints_no_message_of_lightning(stopped, caplog, monkeypatch):
    """A Trainer logs the accelerators that it found, and tips."""
    caplog.set_level(logging.INFO, logger="pytorch_lightning")
    monkeypatch.setattr(logging.getLogger("pytorch_lightning"), "handlers", [caplog.handler])
    loop_counters.cache_clear()
    edit(stopped, lambda c: fit_loop(c).clear())
    assert resume(stopped) == 2
    assert caplog.messages == []


def test_the_checkpoint_of_a_run_is_resumed(stopped, parts):
    require_resumable(*stopped.step_checkpoints(), parts, BATCHES)
    assert resume(stopped) == 0
    assert stopped.is_finished()
    assert stopped.summary()["step"] == 2 * BATCHES


@pytest.mark.parametrize("optimizer", ["lars", "sgd"])
def test_the_state_of_another_optimizer_is_refused(stopped, optimizer):
    """`--resume PATH` takes another configuration, but the state of an optimizer fits only that optimizer."""
    other = Configuration.parse([*FLAGS, f"--model.optimization.name={optimizer}"]).build()
    line = (
        r"optimizer has \d+ parameters with betas, that of model.optimization has \d+ \+ \d+ parameters with momentum"
    )
    with pytest.raises(ValueError, match=line):
        require_resumable(*stopped.step_checkpoints(), other, BATCHES)


@pytest.mark.parametrize("optimizer", ["lars", "sgd"])
def test_the_state_of_every_optimizer_has_an_example(stopped, optimizer):
    other = Configuration.parse([*FLAGS, f"--model.optimization.name={optimizer}"]).build()
    mine = other.method.make_optimizer()
    for p in other.method.parameters():
        p.grad = torch.zeros_like(p)
    mine.step()
    groups = [{**group, "initial_lr": 0.1} for group in mine.state_dict()["param_groups"]]
    file = edit(stopped, lambda c: c.update(optimizer_states=[{**mine.state_dict(), "param_groups": groups}]))
    edit(stopped, lambda c: c["lr_schedulers"][0].update(base_lrs=[0.1] * 2, _last_lr=[0.1] * 2, lr_lambdas=[None] * 2))
    require_resumable(file, other, BATCHES)
    edit(stopped, lambda c: c["optimizer_states"][0]["state"][0].clear())
    with pytest.raises(ValueError, match=r"state\[0\]={}: expected the keys"):
        require_resumable(file, other, BATCHES)


def test_the_state_of_the_users_own_callback_is_loaded_into_a_copy(stopped):
    own = Configuration.parse([*FLAGS, f"--trainer.callbacks=[{STOP}]"]).build()
    (callback,) = own.trainer["callbacks"]
    file = edit(stopped, lambda c: c["callbacks"].update({callback.state_key: {"wait_count": 5}}))
    with pytest.raises(ValueError, match=r"callbacks.EarlyStopping.*: KeyError: "):
        require_resumable(file, own, BATCHES)
    assert callback.wait_count == 0


def test_fewer_epochs_than_the_checkpoint_has_are_refused(stopped, capsys):
    def add_epochs(content):
        for counts in fit_loop(content)["epoch_progress"].values():
            counts.update(dict.fromkeys(counts, 3))

    edit(stopped, add_epochs)
    before = content_of(stopped.path)
    assert resume(stopped) == 2
    assert "trainer.max_epochs=2: max_epochs must be at least 3, the epochs of" in capsys.readouterr().err
    assert content_of(stopped.path) == before


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.csv", "summary.json", "config.yaml", "error.txt"])
@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a device"])
def test_a_file_of_a_run_that_cannot_be_written_is_refused(stopped, name, kind, capsys):
    file = stopped.path / name
    file.unlink(missing_ok=True)
    if kind == "a device":
        file.symlink_to("/dev/null")
    else:
        os.mkfifo(file) if kind == "a pipe" else file.mkdir()
    before = content_of(stopped.path)
    assert resume(stopped, "--resume", str(stopped.path)) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert f"{file}: it is {kind}, not a regular file" in error or name == "config.yaml"
    assert content_of(stopped.path) == before


def test_a_file_in_place_of_the_checkpoints_is_refused(stopped, capsys):
    shutil.rmtree(stopped.checkpoints)
    stopped.checkpoints.write_text("")
    assert resume(stopped) == 2
    assert "checkpoints: it is not a folder" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------------------
# Any value at any place

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3), st.just([]), st.just({}),
    st.just({"a": 1}), st.just([1, "x"]), st.just(torch.zeros(2)),
)  # fmt: skip


def places(tree, path=()):
    """The path to every value of a checkpoint but its weights and its configuration."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        if key not in ("state_dict", "lightning_ssl", "hyper_parameters") or path:
            yield (*path, key)
            yield from places(value, (*path, key))


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_value_at_any_place_is_resumed_or_refused(trained, parts, tmp_path_factory, data):
    """A checkpoint that passes is also loaded by Lightning's loops, by the optimizer and by the schedule."""
    (file,) = trained.step_checkpoints()
    content = torch.load(file, weights_only=True)
    path = data.draw(st.sampled_from(list(places(content))))
    owner = content
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = data.draw(VALUES)
    other = tmp_path_factory.mktemp("any") / "step-00000006.ckpt"
    torch.save(content, other)
    try:
        require_resumable(other, parts, BATCHES)
    except ValueError:
        return
    load(content, copy.deepcopy(parts.method))


def load(content, method):
    from torch.optim.lr_scheduler import LambdaLR

    from lightning_ssl._lightning import pl

    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit_loop.load_state_dict(content["loops"]["fit_loop"])
    assert isinstance(trainer.current_epoch + trainer.global_step, int)
    optimizer = method.make_optimizer()
    rate = LambdaLR(optimizer, lambda step: 1.0)
    optimizer.load_state_dict(content["optimizer_states"][0])
    for p in method.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    rate.load_state_dict(content["lr_schedulers"][0])
    rate.step()
