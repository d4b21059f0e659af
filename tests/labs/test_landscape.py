"""The landscape lab: its data, the paper's theorems, tables and claims."""

import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.closeness import close
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl import papers
from lightning_ssl.labs import landscape
from lightning_ssl.labs.landscape import claims, data, losses, recipes, tables, theorems
from lightning_ssl.labs.landscape.models import Model
from lightning_ssl.labs.landscape.recipes import RECIPES, Setting, setting_of
from lightning_ssl.labs.landscape.tables import Row
from lightning_ssl.labs.landscape.training import train, train_all

SMALL = Setting(epochs=3, samples=23, batch=8, p=9, d=3, m=7, tau=0.3)


def test_the_released_codes_are_the_same_for_sparsities_0_1_and_0_2() -> None:
    drawn = [data.sparse_codes("permuted", 50, 10, s, torch.Generator().manual_seed(0)) for s in (0.1, 0.2, 0.3)]
    assert torch.equal(drawn[0], drawn[1])
    assert drawn[0].sum(1).eq(0).all()
    assert drawn[0].abs().sum(1).eq(2).all()
    # Two −1 and one +1: the mean of the data is along the sum of all dictionary columns.
    assert drawn[2].sum(1).eq(-1).all()


def test_bernoulli_codes_are_never_empty_and_have_the_stated_sparsity() -> None:
    z = data.sparse_codes("bernoulli", 20_000, 10, 0.3, torch.Generator().manual_seed(0))
    assert z.abs().sum(1).min() >= 1
    empty = 0.7**10
    assert float(z.abs().mean()) == pytest.approx(0.3 + empty / 10, abs=0.01)  # 20,000 samples
    assert float(z.mean()) == pytest.approx(0.0, abs=0.01)


def test_max_cosine_is_one_for_the_dictionary_itself_and_ignores_scale_and_sign() -> None:
    generator = torch.Generator().manual_seed(0)
    M = torch.linalg.qr(torch.randn(9, 4, generator=generator))[0]
    W = torch.cat([-3 * M.T, torch.randn(2, 9, generator=generator)])
    close(data.max_cosine(W, M), torch.ones(3), terms=9)
    close(data.max_cosine(W[:3], M)[2], torch.zeros(()), terms=9, scale=1)  # no row for the fourth column


def test_a_warm_start_without_noise_begins_at_the_dictionary() -> None:
    s = replace(SMALL, epochs=1, m=30)
    cosines, _ = train(Row("", "warm", Model("dual"), 0.5, 0.0), [0.3], [0], s)
    close(cosines[0, 0, 0], torch.ones(3), terms=s.p)


def test_the_published_start_of_figure_7_is_that_of_figure_13_and_not_of_its_caption() -> None:
    started = {}
    for row in tables.table_rows(default_arguments() | {"tables": ("figures",)}):
        if row.name.startswith(("fig 7", "fig 13")):
            setting = row.setting(Setting(epochs=1, samples=2, batch=2))
            cosines, _ = train(row, [0.1], range(40), setting)
            started[row.name.partition(":")[0]] = float(cosines[0, 0, :, 2].mean())
    published = papers.load("landscape")["figures"]["fig 7"]["start"]
    assert abs(started["fig 13"] - published) < 0.05
    assert started["fig 7"] > 0.85


def test_theorem_1_only_permutations_attain_the_bound_of_the_contrastive_loss() -> None:
    d, keep, tau = 4, 0.5, 1.5
    eye = torch.eye(d, dtype=torch.float64)
    # Eqn. 20: numerator e^τ when both masks keep i, 1 otherwise; all d − 1 other terms are 1
    kept = math.log1p((d - 1) * math.exp(-tau))
    lowest = keep**2 * kept + (1 - keep**2) * math.log(d)
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        close(float(theorems.contrastive_loss(eye[order], keep, tau)), lowest, terms=d * 2**d, gain=tau)
    W = torch.randn(200, d, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert (theorems.contrastive_loss(W / W.norm(dim=1, keepdim=True), keep, tau) > lowest + 1e-4).all()


def test_the_best_combination_is_the_best_of_a_loop_over_angles_and_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    A, B = torch.randn(2, 6, 5, generator=generator, dtype=torch.float64)
    M = torch.linalg.qr(torch.randn(5, 3, generator=generator, dtype=torch.float64))[0]
    best = [0.0, 0.0, 0.0]
    for k in range(40):
        W = math.cos(math.pi * k / 40) * A + math.sin(math.pi * k / 40) * B
        columns = sorted(max(abs(float(w @ m / w.norm() / m.norm())) for w in W) for m in M.T)
        best = [max(*pair) for pair in zip(best, [columns[2], columns[1], columns[0]], strict=True)]
    close(theorems.best_combination(A, B, M, angles=40), torch.tensor(best, dtype=torch.float64), terms=5)


def test_descent_of_the_linear_dual_network_follows_the_gradient_of_its_population_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    A, B = torch.randn(2, 6, 5, generator=generator, dtype=torch.float64)
    M = torch.linalg.qr(torch.randn(5, 3, generator=generator, dtype=torch.float64))[0]
    rate, decay, keep, p_z, sigma0 = 0.1, 0.9, 0.4, 0.2, 0.3
    covariance = 2 * p_z * M @ M.T + sigma0**2 * torch.eye(5, dtype=torch.float64)  # of x = Mz + ε
    X, Y = A.clone().requires_grad_(), B.clone().requires_grad_()
    for _ in range(3):
        loss = 2 - 2 * keep**2 * (X @ covariance @ Y.T).trace()  # Eqn. 12
        steps = torch.autograd.grad(loss, (X, Y))
        with torch.no_grad():
            X, Y = ((decay * W - rate * g).requires_grad_() for W, g in zip((X, Y), steps, strict=True))
    for found, expected in zip(
        theorems.linear_descent(A, B, M, 3, rate, decay, keep, p_z, sigma0), (X, Y), strict=True
    ):
        close(found, expected.detach(), terms=3 * 2 * 5)


def test_theorem_3_population_gradient_matches_samples() -> None:
    d, keep, kappa, b, n = 4, 0.5, 0.4, 0.2, 400_000
    generator = torch.Generator().manual_seed(0)
    A, B = torch.eye(d) + 0.02 * torch.randn(2, d, d, generator=generator)
    A.requires_grad_()
    z = (torch.rand(n, d, generator=generator) < kappa) * (torch.randint(0, 2, (n, d), generator=generator) * 2.0 - 1)
    masks = torch.rand(2, n, d, generator=generator) < keep

    def sym_relu(x: Tensor) -> Tensor:
        return F.relu(x - b) - F.relu(-x - b)

    loss = 2 - 2 * (sym_relu((masks[0] * z) @ A.T) * sym_relu((masks[1] * z) @ B.T)).sum(1).mean()
    (grad,) = torch.autograd.grad(loss, A)
    # n samples, and the theorem's gradient is that of first order near W = I.
    torch.testing.assert_close(grad, theorems.relu_gradient(B, b, keep, kappa), atol=3e-3, rtol=0.02)


def default_arguments() -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(landscape.run).parameters.items()}


def run_terms(epochs: int, samples: int, batch: int, **_: object) -> int:
    """Numbers added up in a run of the lab, whose p and m are 50."""
    return epochs * (samples // batch) * 2 * (50 + 50 + 2 * batch)


def test_sparsities_with_the_same_codes_share_their_runs() -> None:
    settings = {"tables": ("4",), "sigmas": (0.02,), "epochs": 3, "samples": 16, "batch": 8, "seeds": 2}
    result = landscape.run(**settings)
    path = result.arrays["table 4: ncl_basic σ=0.02"]
    assert path.shape == (4, 3, 2, 3)  # (T, sparsities, seeds, metrics)
    assert torch.equal(path[:, 0], path[:, 1])
    assert not torch.equal(path[-1, 0], path[-1, 2])


def test_the_papers_orderings_are_claims_and_its_cells_stand_beside_ours() -> None:
    result = landscape.run(epochs=1, samples=8, batch=4, seeds=1)
    orderings = [claim.name for claim in result.claims if claim.name.endswith("minimum") and " over " in claim.name]
    # β = 0.1 and 0.2 have the same codes: one claim, as for the one-hot codes of Figure 1
    for pair in (
        "cl_linear over ncl_linear",
        "cl_basic over ncl_basic",
        "cl_basic over ncl_basic_2l",
        "simplified_simclr over simplified_simsiam",
        "ncl_basic σ=0.02 over ncl_basic σ=0.14",
        "ncl_basic σ=0.002 over ncl_basic σ=0.14",
        "ncl_basic over ncl_basic, dependent masks",
        "cl_basic over cl_basic, dependent masks",
        "fig 8: cl over fig 8: ncl",
        "fig 9: cl, m = 10 over fig 9: ncl, m = 10",
        "fig 5: warm start, trained predictor over fig 6: trained predictor",
        "fig 5: warm start, fixed predictor over fig 6: fixed predictor",
    ):
        for data_of in ("β=0.1, 0.2", "β=0.3"):
            assert orderings.count(f"{pair}, {data_of}, minimum") == 1, pair
    assert orderings.count("fig 1: cl, one-hot over fig 1: ncl, one-hot, β=0.1, 0.2, 0.3, minimum") == 1
    assert len(orderings) == 2 * 12 + 1
    cells = [claim for claim in result.claims if claim.name.startswith("Table ")]
    assert len(cells) == 10 * 2 * 3
    simclr = next(claim for claim in cells if claim.name == "Table 1 simplified_simclr β=0.1, 0.2 minimum")
    assert simclr.paper == pytest.approx((0.83 + 0.90) / 2)
    figures = {claim.name.partition(":")[0] for claim in result.claims if claim.name.startswith("fig ")} - {
        pair.partition(":")[0] for pair in orderings
    }
    assert figures == {"fig 4", "fig 7", "fig 13", "fig 14", "fig 15", "fig 16"}
    marked = " (the text against its caption)"
    said = {claim.name.rpartition(": ")[2] for claim in result.claims if claim.name.startswith("fig 7")}
    assert said == {f"rises{marked}", f"start{marked}", "end"}
    published = [line for line in result.figure().axes[0].lines if line.get_markersize() == 14]
    assert [len(line.get_xdata()) for line in published] == [3] * 5  # three sparsities of five models


@pytest.mark.usefixtures("forked_trials")
def test_two_workers_train_with_every_importance_and_give_the_results_of_one() -> None:
    settings = {"tables": ("2", "importance"), "sparsities": (0.3,), "epochs": 2, "samples": 16, "batch": 8, "seeds": 2}
    settings |= {"importance_epochs": 2, "importance_batch": 8}
    alone, shared = landscape.run(**settings), landscape.run(**settings, workers=2)
    assert alone.arrays.keys() == shared.arrays.keys()
    assert torch.equal(alone.arrays["epochs"], torch.arange(3))
    paths = {name: array for name, array in alone.arrays.items() if name.startswith(("table", "importance "))}
    assert len(paths) == 5 + len(losses.IMPORTANCES)
    for name, path in paths.items():
        close(shared.arrays[name], path, terms=run_terms(**settings))
        assert torch.isfinite(path).all()
        assert not torch.equal(path[0], path[-1])
    assert len(alone.figure().axes) == 4  # two panels of each study


def test_the_distance_of_a_recipe_is_the_mean_over_the_cells_of_table_2() -> None:
    rows = tables.table_rows(default_arguments() | {"tables": ("recipes",), "recipes": ("text",)})
    generator = torch.Generator().manual_seed(0)
    runs = {row: {(0.1,): torch.rand(2, 3, 3, generator=generator)} for row in rows}
    published = papers.load("landscape")["table2"]
    gaps = [
        abs(float(sum(paths[(0.1,)][-1, k, j] for k in range(3))) / 3 - published[row.name.split(": ")[1]][0.1][j][0])
        for row, paths in runs.items()
        for j in range(3)
    ]
    gap, near, count = claims.distance(runs, "text")
    assert (count, near) == (15, sum(each <= 0.05 for each in gaps))
    assert gap == pytest.approx(sum(gaps) / 15)


def test_a_recipe_decides_what_is_trained_and_a_flag_goes_before_it() -> None:
    assert setting_of("text").sigma0 == pytest.approx(math.sqrt(math.log(10) / 10))
    assert setting_of("text-sigma").sigma0 == pytest.approx(math.log(10) / 10)
    assert setting_of("released").sigma0 == pytest.approx(math.sqrt(math.log(10)) / 10)
    assert setting_of("released-3000", samples=40).samples == 40
    assert setting_of("released-3000", samples=None).samples == 3000
    assert len(RECIPES) <= 12
    assert len({setting_of(recipe) for recipe in RECIPES}) == len(RECIPES)


def test_the_chosen_recipe_is_the_nearest_to_table_2_once_all_are_measured() -> None:
    assert set(recipes.DISTANCES) <= set(RECIPES)
    if len(recipes.DISTANCES) == len(RECIPES):
        assert recipes.DISTANCES[recipes.CHOSEN] == min(recipes.DISTANCES.values())
    else:
        assert recipes.CHOSEN == "released"


@pytest.mark.parametrize("name", tables.MODELS)
def test_a_field_that_a_row_resets_has_no_effect_on_its_model(name: str) -> None:
    base = replace(SMALL, epochs=1)
    row = Row("", name, tables.MODELS[name], 0.5)
    _, expected = train(row, [0.3], [0], base)
    for field in ("drop_last", "symmetric", "projector", "all_layers"):
        changed = replace(base, **{field: not getattr(base, field)})
        if row.setting(changed) == row.setting(base):
            assert torch.equal(train(row, [0.3], [0], changed)[1], expected), field
    # A field that the row keeps is kept with its changed value.
    assert row.setting(replace(base, noise=0.5)).sigma0 == 0.5


def test_the_published_figures_support_every_ordering_that_is_claimed() -> None:
    published = papers.load("landscape")
    for better, worse in claims.ORDERINGS:
        table = published["table2" if better in published["table2"] else "table1"]
        for sparsity in (0.1, 0.2, 0.3):
            assert table[better][sparsity][2][0] > table[worse][sparsity][2][0]
    for by_sigma in published["table4"].values():
        assert min(by_sigma[0.02][2][0], by_sigma[0.002][2][0]) > by_sigma[0.14][2][0]


def test_the_study_of_warm_starts_covers_masks_starts_and_both_normalizations() -> None:
    result = landscape.run(tables=("warm",), epochs=1, samples=4, batch=4, seeds=1, sparsities=(0.1,))
    assert len({note for note in result.notes if "-normalized, c = " in note}) == 2 * 4 * 4


def test_the_study_of_recipes_trains_equal_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def counted(jobs: Sequence[tuple[Any, ...]], workers: int, progress: bool) -> list[Tensor]:
        counts.append(len(jobs))
        return train_all(jobs, workers, progress)

    monkeypatch.setattr(landscape, "train_all", counted)
    chosen = ("released", "released-all-batches", "released-all-layers")
    result = landscape.run(tables=("recipes",), recipes=chosen, epochs=1, samples=12, batch=8, seeds=1)
    # Dropping the last batch changes the two pair losses, the optimizers change the three dual networks.
    assert counts == [5 + 2 + 3]
    first, second, third = (result.arrays[f"table recipes: {recipe}: cl_basic"] for recipe in chosen)
    assert torch.equal(first, third)
    assert not torch.equal(first, second)
    assert [note.split(" (")[0] for note in result.notes[1:]] == [f"recipe {recipe}" for recipe in chosen]
