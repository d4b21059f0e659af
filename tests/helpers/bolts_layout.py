"""Checkpoints in the layout of lightning-bolts 0.7, without bolts. tests/bolts compares the layout with bolts."""

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import resnet18

SIMCLR = {"dataset": "cifar10", "batch_size": 64, "first_conv": False, "maxpool1": False, "temperature": 0.2}
HPARAMS = {
    "SimCLR": {**SIMCLR, "optimizer": "lars", "learning_rate": 0.3, "weight_decay": 1e-6, "warmup_epochs": 10},
    "BYOL": {"learning_rate": 0.2, "weight_decay": 1.5e-6, "warmup_epochs": 10, "initial_tau": 0.99},
    "SimSiam": {"learning_rate": 0.05, "weight_decay": 1e-4, "momentum": 0.8, "predictor_hidden_dim": 8},
}


class Head(nn.Module):
    def __init__(self, before, hidden, after, biases):
        super().__init__()
        first, last = biases
        self.model = nn.Sequential(
            nn.Linear(before, hidden, bias=first),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, after, bias=last),
        )

    def forward(self, x):
        return self.model(x)


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = resnet18()  # the ResNet of bolts has the same names
        self.encoder.fc = nn.Identity()
        self.projector = Head(512, 32, 16, (False, True))


class SimCLR(nn.Module):
    """The encoder has a classifier that is not used."""

    def __init__(self):
        super().__init__()
        self.encoder = resnet18()
        self.encoder.conv1, self.encoder.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.MaxPool2d(1, 1)
        self.projection = Head(512, 512, 128, (True, False))

    def forward(self, x):
        classifier, self.encoder.fc = self.encoder.fc, nn.Identity()
        features = self.encoder(x)
        self.encoder.fc = classifier
        return features, F.normalize(self.projection(features), dim=1)


class Siamese(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.online_network, self.target_network = Branch(), Branch()
        self.predictor = Head(16, hidden, 16, (False, True))

    def forward(self, x):
        features = self.online_network.encoder(x)
        return features, self.predictor(self.online_network.projector(features))


def network(kind):
    """A network in the layout of bolts, with random statistics and parameters of its norms."""
    torch.manual_seed(0)
    net = SimCLR() if kind == "SimCLR" else Siamese({"BYOL": 32, "SimSiam": 8}[kind])
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            for statistic in (module.running_mean, module.running_var, module.weight.data, module.bias.data):
                statistic.uniform_(0.5, 1.5)
    return net.eval()


def save(path, state, hparams):
    torch.save({"epoch": 3, "global_step": 120, "state_dict": state, "hyper_parameters": hparams}, path)
    return path
