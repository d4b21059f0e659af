"""`lightning-ssl fit`: train one model in one run folder.

usage: lightning-ssl fit --config FILE [--config FILE …] [--FLAG VALUE …]

Train one model in one run folder.

examples:
  lightning-ssl fit --config quickstart                              a minute on one core
  lightning-ssl fit --config data/cifar10 --config method/direct --seed_everything 1
  lightning-ssl fit --config quickstart --config method/direct --model.importance.p 6
  lightning-ssl fit … --trainer.devices 4 --trainer.strategy ddp     4 GPUs
  lightning-ssl fit … --print_config                                 print the configuration, stop

Later files and flags win. A file is a path, or the name of a packaged file (`lightning-ssl list`).
The same command resumes a run that was stopped.

the run
  --config FILE                          configuration; can be given several times
  --name NAME                            name of the run folder; generated if not given
  --runs DIR                             folder of run folders (default: runs)
  --resume auto|never|PATH               resume a stopped run; a new run; a folder or checkpoint
  --seed_everything INT                  seed of weights, batches and views (default: 0)
  --logger none|csv|tensorboard|wandb    where metrics are logged besides the run folder

the loss
  --model NAME                           SimCLR, AlphaCL, SimSiam, BYOL
  --model.tau FLOAT                      temperature of SimCLR
  --model.importance NAME                α of AlphaCL: Direct, Entropy, Inverse, Square, Tsallis, …
  --model.importance.tau FLOAT           temperature, or strength of the regularizer

the network and its training
  --model.backbone NAME                  resnet18, resnet34, resnet50, resnet_tiny, timm:NAME
  --model.augment NAME                   paper_cifar, simclr_cifar, byol_cifar, simsiam_cifar, …
  --model.optimization.name NAME         adam, sgd, lars
  --model.optimization.lr FLOAT          base learning rate
  --trainer.max_epochs INT               length of the training
  --trainer.devices INT                  GPUs or processes; --trainer.accelerator cpu for no GPU
  --trainer.precision NAME               32-true, bf16-mixed, 16-mixed

the data
  --data.name NAME                       shapes, cifar10, cifar100, stl10, folder
  --data.root DIR                        folder of the data sets (default: data)
  --data.batch_size INT                  images per step of all GPUs together

what is measured
  --probe null | --knn null              switch off the linear probe, the nearest neighbours

more: lightning-ssl fit --help TOPIC     all, run, model, model.AlphaCL, model.importance, Direct,
                                         data, trainer, probe, knn, checkpoint, trainer.precision
"""

from __future__ import annotations

import os
import sys

from lightning_ssl.app.commands.parser import below_first_line
from lightning_ssl.app.config import help
from lightning_ssl.app.config.known import check_early
from lightning_ssl.app.config.text import asks_to_print, steps
from lightning_ssl.app.launch.noted_signals import NotedSignals
from lightning_ssl.app.tracking.agent import sweep_flags


def main(argv: list[str], early: NotedSignals | None = None) -> int:
    """Read the flags, then train. `early` has noted the signals before this call."""
    if help.asks_for_help(argv):
        return help.main(argv, below_first_line(__doc__))
    sys.path.insert(0, os.getcwd())  # for the user's own classes, given by their path
    argv = sweep_flags(argv)
    given = list(steps(argv))
    check_early(given)

    # Late: they import torch and Lightning, and what is refused above must not wait for them.
    from lightning_ssl.app.config.configuration import Configuration, printed
    from lightning_ssl.app.training.run import quiet, train

    with quiet():
        config = Configuration.of(given)
    if asks_to_print(argv):
        print(printed(config), end="")
        return 0
    return train(config, argv, early)
