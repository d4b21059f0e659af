"""Everything that two ranks exchange in a training step of `fit`, counted by torch's profiler, which sees DDP too."""

import json
from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from helpers import small_fit
from helpers.processes.killing import one_thread  # noqa: F401
from helpers.processes.ranks import join, start_ranks

from lightning_ssl import methods
from lightning_ssl.app.commands import fit
from lightning_ssl.losses import device

FLAGS = [
    *small_fit("SimCLR", train_images=64, batch_size=8), "--trainer.max_epochs=1", "--knn.k=5",
    "--trainer.log_every_n_steps=8", "--importance_monitor=null",
    "--probe.share=0.25",  # of the epoch, at its end
    "--model.projector.hidden=32", "--model.projector.out=16",  # the gradients are one bucket of DDP
]  # fmt: skip
SEEN = (2, 7)  # the third step, as the first two are special in DDP; a log step at which the probe learns


def collectives_of_steps(file, acting):
    """Run `fit`, and write the collectives of two steps."""

    def run(argv):
        counts, profiler = [], None
        begin, end = methods.Method.on_train_batch_start, methods.Method.on_train_batch_end

        def on_train_batch_start(self, batch, batch_idx):
            nonlocal profiler
            begin(self, batch, batch_idx)
            if batch_idx in SEEN:
                profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
                profiler.start()

        def on_train_batch_end(self, outputs, batch, batch_idx):
            end(self, outputs, batch, batch_idx)
            if batch_idx in SEEN:
                profiler.stop()
                counts.append(Counter(event.name for event in profiler.events() if event.name.startswith("c10d::")))
                file.write_text(json.dumps(counts))

        methods.Method.on_train_batch_start = on_train_batch_start
        methods.Method.on_train_batch_end = on_train_batch_end
        with device.acting_as_accelerator() if acting else nullcontext():
            return fit.main(argv)

    return run


@pytest.mark.parametrize(("acting", "gathered"), [(True, 1), (False, 2)])  # a CPU compares the shapes too
def test_two_ranks_exchange_nothing_in_a_step_but_these(acting, gathered, tmp_path):
    """The gradients; the buffers of batch norm, floats and counters; the embeddings and their gradients."""
    file = tmp_path / "collectives.json"
    argv = [*FLAGS, f"--runs={tmp_path}", "--name=run"]
    assert join(start_ranks(argv, run=collectives_of_steps(file, acting))) == [0, 0]
    each = {"allreduce_": 1, "broadcast_": 2, "_allgather_base_": gathered, "_reduce_scatter_base_": 1}
    at_the_end = each | {
        "allreduce_": 2,
        "_allgather_base_": gathered + 1,
    }  # guard, probe
    expected = [{f"c10d::{name}": count for name, count in counts.items()} for counts in (each, at_the_end)]
    assert json.loads(file.read_text()) == expected
