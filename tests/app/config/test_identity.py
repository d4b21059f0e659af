"""When two configurations are the same, for resume and for runs that sweeps share."""

import pytest

from lightning_ssl.app.config.identity import identity


def config(**changes):
    arguments = {"tau": 0.5, "beta": 0, **changes}
    return {"model": {"class_path": "lightning_ssl.SimCLR", "init_args": arguments}}


@pytest.mark.parametrize(
    "other",
    [
        {**config(), "name": "one", "runs": "elsewhere", "group": "g", "tags": ["a"], "logger": "wandb"},
        {**config(), "trainer": {"devices": 4, "accelerator": "gpu"}},
        {**config(), "data": {"holdout": 0}},
        config(beta=0.0),
        {"model": {"class_path": "lightning_ssl.methods.SimCLR", "init_args": {"tau": 0.5, "beta": 0}}},
    ],
)
def test_these_are_the_same(other):
    assert identity(other) == identity(config())


@pytest.mark.parametrize(
    "other",
    [
        config(tau=0.1),
        {**config(), "data": {"holdout": 500}},
        {**config(), "trainer": {"max_epochs": 3}},
        {"model": {"class_path": "mine.SimCLR", "init_args": {"tau": 0.5, "beta": 0}}},
        {**config(), "trainer": {"callbacks": [{"class_path": "mine.Stop"}]}},
    ],
)
def test_these_are_different(other):
    assert identity(other) != identity(config())


def test_the_module_of_a_foreign_class_counts():
    one, two = ({"model": {"class_path": f"{module}.Loss"}} for module in ("mine", "yours"))
    assert identity(one) != identity(two)


def test_numbers_are_compared_by_value_also_in_lists():
    assert identity({"a": 127, "b": [1, {"c": 2}]}) == identity({"a": 127.0, "b": [1.0, {"c": 2.0}]})
    assert identity({"a": float("nan")}) == identity({"a": float("nan")})


def test_one_batch_is_not_all_batches():
    one, all_of_them = ({"trainer": {"limit_train_batches": value}} for value in (1, 1.0))
    assert identity(one) != identity(all_of_them)
