"""Everything that two ranks exchange in a training step of `fit`, counted by torch's profiler, which sees DDP too."""

import json
from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from helpers import small_fit
from helpers.killing import one_thread  # noqa: F401
from helpers.ranks import join, start_ranks

from lightning_ssl import methods
from lightning_ssl.app.commands import fit
from lightning_ssl.losses import device

FLAGS = [
    *small_fit("SimCLR", train_images=64, batch_size=8), "--trainer.max_epochs=1", "--knn.k=5",
    "--probe.share=0.25",  # of the epoch, at its end
    "--model.projector.hidden=32", "--model.projector.out=16",  # the gradients are one bucket of DDP
]  # fmt: skip


def collectives_of_a_step(file, acting):
    """Run `fit`, and write the collectives of the third step: the first two are special in DDP."""

    def run(argv):
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        begin, end = methods.Method.on_train_batch_start, methods.Method.on_train_batch_end

        def on_train_batch_start(self, batch, batch_idx):
            begin(self, batch, batch_idx)
            if batch_idx == 2:
                profiler.start()

        def on_train_batch_end(self, outputs, batch, batch_idx):
            end(self, outputs, batch, batch_idx)
            if batch_idx == 2:
                profiler.stop()
                found = Counter(event.name for event in profiler.events() if event.name.startswith("c10d::"))
                file.write_text(json.dumps(found))

        methods.Method.on_train_batch_start, methods.Method.on_train_batch_end = (
            on_train_batch_start,
            on_train_batch_end,
        )
        with device.acting_as_accelerator() if acting else nullcontext():
            return fit.main(argv)

    return run


DDP = {"allreduce_": 1, "broadcast_": 2}  # the gradients, and the buffers of batch norm: floats, and counters


@pytest.mark.parametrize(("acting", "gathered"), [(True, 1), (False, 2)])  # a CPU compares the shapes too
def test_two_ranks_exchange_nothing_in_a_step_but_these(acting, gathered, tmp_path):
    file = tmp_path / "collectives.json"
    argv = [*FLAGS, f"--runs={tmp_path}", "--name=run"]
    assert join(start_ranks(argv, run=collectives_of_a_step(file, acting))) == [0, 0]
    expected = DDP | {"_allgather_base_": gathered, "_reduce_scatter_base_": 1}
    assert json.loads(file.read_text()) == {f"c10d::{name}": count for name, count in expected.items()}
