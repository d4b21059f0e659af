"""When two configurations are the same, for resume and for runs that sweeps share."""

import pytest

from lightning_ssl.app.config.identity import identity


def config(**changes):
    arguments = {"tau": 0.5, "beta": 0, **changes}
    return {"model": {"class_path": "lightning_ssl.SimCLR", "init_args": arguments}}


def alpha_cl(importance, **changes):
    return {"model": {"class_path": "AlphaCL", "init_args": {"importance": importance, **changes}}}


def node(name, **arguments):
    return {"class_path": name, "init_args": arguments}


def noise(**arguments):
    return {"trainer": {"callbacks": [node("lightning_ssl.callbacks.WeightNoise", std=0.01, **arguments)]}}


NAN = float("nan")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (config(), {**config(), "name": "one", "runs": "elsewhere", "group": "g", "tags": ["a"], "logger": "wandb"}),
        (config(), {**config(), "trainer": {"devices": 4, "accelerator": "gpu"}, "data": {"holdout": 0}}),
        (config(), {"model": {**config(beta=0.0)["model"], "class_path": "lightning_ssl.methods.SimCLR"}}),
        ({"a": 127, "b": [1, {"c": 2}]}, {"a": 127.0, "b": [1.0, {"c": 2.0}]}),
        ({"a": NAN}, {"a": NAN}),
        (alpha_cl(node("FromFamily", family=node("InfoNCE", tau=0.5))), alpha_cl(node("InfoNCE", tau=0.5))),
        # arguments that an older configuration lacks
        (alpha_cl(node("Exact", tau=0.5)), alpha_cl(node("Exact", tau=0.5, distances="clean"), beta_times="row_sum")),
        (alpha_cl(node("Direct", tau=0.5)), alpha_cl(node("Direct", tau=0.5), views_together=True)),
        (noise(), noise(added_to="update")),
    ],
)
def test_these_are_the_same(one, other):
    assert identity(one) == identity(other)


def test_these_are_all_different():
    different = [
        config(),
        config(tau=0.1),
        {**config(), "data": {"holdout": 500}},
        {**config(), "trainer": {"max_epochs": 3}},
        {**config(), "trainer": {"limit_train_batches": 1}},
        {**config(), "trainer": {"limit_train_batches": 1.0}},  # all batches, not one
        {**config(), "trainer": {"callbacks": [{"class_path": "mine.Stop"}]}},
        {"model": {**config()["model"], "class_path": "mine.SimCLR"}},
        {"model": {**config()["model"], "class_path": "yours.SimCLR"}},
        alpha_cl(node("Exact", tau=0.5)),
        alpha_cl(node("Exact", tau=0.5, distances="augmented")),
        alpha_cl(node("Exact", tau=0.5), views_together=False),
        noise(),
        noise(added_to="epoch"),
    ]
    assert len({repr(identity(each)) for each in different}) == len(different)
