"""The accuracy of configs/quickstart.yaml."""

import statistics

import pytest
from helpers import ROOT

from lightning_ssl.app.commands import fit
from lightning_ssl.app.runs import RunFolder


def top1(folder, seed, *configs):
    """Train with the quickstart and return the accuracy of the online probe."""
    flags = [f"--config={ROOT}/configs/{name}.yaml" for name in ("quickstart", *configs)]
    name = f"{'-'.join(configs).replace('/', '-') or 'infonce'}-{seed}"
    quiet = ["--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"]
    assert fit.main([*flags, *quiet, f"--seed_everything={seed}", f"--runs={folder}", f"--name={name}"]) == 0
    return RunFolder(folder / name).summary()["last"]["online/top1"]


@pytest.mark.slow
def test_infonce_reaches_60_percent_and_direct_is_at_most_3_points_below_it(tmp_path):
    infonce = [top1(tmp_path, seed) for seed in range(3)]
    direct = [top1(tmp_path, seed, "method/direct") for seed in range(3)]
    assert min(infonce) >= 0.6
    assert statistics.mean(direct) >= statistics.mean(infonce) - 0.03
