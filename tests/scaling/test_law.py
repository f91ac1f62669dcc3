"""The law is recovered from curves of known constants; the constants stand here alone."""

import json
import sys

import numpy as np
import pytest

from nd_jax.errors import UserError
from nd_jax.scaling.law import CONSTANTS, FitConfig, Law, fit
from nd_jax.scaling.points import Point, read_points, write_points
from nd_jax.scaling.study import analyse, lacking
from nd_jax.scaling.verbs import fit as fit_verb

CHINCHILLA = Law(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)  # as arXiv 2203.15556 prints it
SMALL = Law(E=0.35, A=25.0, B=300.0, alpha=0.4, beta=0.45)
SIZES = np.array([1e5, 2.3e5, 5.5e5, 1.3e6, 3e6])


def study(
    law: Law = SMALL, noise: float = 0.0, seed: int = 0, sizes=SIZES, ratios=(5, 15, 40)
) -> list[Point]:
    rng = np.random.default_rng(seed)
    return [
        Point(
            name=f"{size:.0f}x{ratio}",
            parameters=float(size),
            tokens=float(size * ratio),
            flops=6.2 * size * size * ratio,
            loss=float(law.loss(size, size * ratio) * np.exp(noise * rng.normal())),
            scores={"next state": 1 / (1 + law.loss(size, size * ratio))},
        )
        for size in sizes
        for ratio in ratios
    ]


def within(found: dict, truth: float) -> bool:
    return found["interval"][0] <= truth <= found["interval"][1]


def test_the_published_form_is_recovered_exactly_without_noise():
    sizes, tokens = np.meshgrid(np.geomspace(4e7, 1.6e10, 7), np.geomspace(1e9, 5e11, 6))
    sizes, tokens = sizes.ravel(), tokens.ravel()
    found = fit(sizes, tokens, CHINCHILLA.loss(sizes, tokens), FitConfig(resamples=2))
    for name in CONSTANTS:
        assert getattr(found.law, name) == pytest.approx(getattr(CHINCHILLA, name), rel=1e-4)
    assert found.error < 1e-6


@pytest.mark.parametrize("law", [CHINCHILLA, SMALL])
def test_constants_lie_in_their_intervals_under_noise(law):
    sizes = SIZES if law is SMALL else SIZES * 1e3
    figures = analyse(study(law, noise=0.003, seed=1, sizes=sizes), FitConfig(resamples=100, level=0.99))
    for name in CONSTANTS:
        told = figures["law"][name]
        assert within(told, getattr(law, name)), name
        assert told["interval"][0] < told["value"] < told["interval"][1]
    exponent = law.beta / (law.alpha + law.beta)
    assert within(figures["frontier"]["exponent"], exponent)
    for name in ("alpha", "beta"):  # and the intervals say something
        low, high = figures["law"][name]["interval"]
        assert high - low < 0.3


def test_an_outlier_pulls_little():
    points = study(noise=0.001)
    wrong = points[4]
    points[4] = Point(wrong.name, wrong.parameters, wrong.tokens, wrong.flops, wrong.loss * 1.3)
    found = analyse(points, FitConfig(resamples=2))["law"]
    assert found["alpha"]["value"] == pytest.approx(SMALL.alpha, abs=0.06)
    assert found["beta"]["value"] == pytest.approx(SMALL.beta, abs=0.06)


def test_the_largest_size_is_predicted_by_the_others():
    held_out = analyse(study(noise=0.002), FitConfig(resamples=40))["held_out"]
    assert held_out["parameters"] == SIZES[-1]
    assert [run["tokens"] for run in held_out["runs"]] == [5 * 3e6, 15 * 3e6, 40 * 3e6]
    for run in held_out["runs"]:
        assert abs(run["off"]) < 0.02
        assert run["interval"][0] < run["predicted"] < run["interval"][1]
    points = study()
    points[-1] = Point("odd", points[-1].parameters, points[-1].tokens, points[-1].flops, 2 * points[-1].loss)
    assert analyse(points, FitConfig(resamples=2))["held_out"]["runs"][-1]["off"] == pytest.approx(
        -0.5, abs=0.02
    )


def test_the_frontier_is_the_lowest_loss_for_its_compute():
    row = analyse(study(), FitConfig(resamples=2))["frontier"]["budgets"][1]
    assert row["flops"] / (row["parameters"] * row["tokens"]) == pytest.approx(6.2)
    sizes = row["parameters"] * np.geomspace(0.2, 5, 201)
    losses = SMALL.loss(sizes, row["flops"] / 6.2 / sizes)
    assert row["loss"] == pytest.approx(losses.min(), rel=1e-3)
    assert losses.argmin() == pytest.approx(100, abs=3)


def test_iso_flop_parabolas_find_the_optimum():
    points = []
    for budget in (1e14, 1e15):
        best, _ = SMALL.optimum(np.float64(budget), 6.0)
        for size in best * np.array([0.4, 0.7, 1.0, 1.5, 2.5]):
            tokens = budget / 6 / size
            points.append(Point("", float(size), float(tokens), budget, float(SMALL.loss(size, tokens))))
    found = analyse(points, FitConfig(resamples=2))["iso_flop"]
    assert [group["flops"] for group in found["groups"]] == pytest.approx([1e14, 1e15])
    for group in found["groups"]:
        best, _ = SMALL.optimum(np.float64(group["flops"]), 6.0)
        assert group["parameters"] == pytest.approx(best, rel=0.1)
    assert found["exponent"] == pytest.approx(SMALL.beta / (SMALL.alpha + SMALL.beta), abs=0.02)
    assert "no compute" in analyse(study(), FitConfig(resamples=2))["iso_flop"]["skipped"]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "0 points, at least 8"),
        (study()[:7], "7 points, at least 8"),
        (study(sizes=SIZES[:2], ratios=(1, 2, 4, 8, 16)), "2 different sizes"),
        (study(sizes=np.geomspace(1e5, 3e6, 9), ratios=(20,)), "vary one alone"),
    ],
)
def test_too_few_points_are_refused(points, message):
    with pytest.raises(UserError, match=message):
        analyse(points)
    assert lacking(study()) is None


def test_a_small_study_says_that_nothing_is_held_out():
    points = study(sizes=SIZES[:3], ratios=(5, 15, 40))
    assert "without the largest size" in analyse(points, FitConfig(resamples=2))["held_out"]["skipped"]


def test_scores_against_compute():
    told = analyse(study(), FitConfig(resamples=2))["scores"]["next state"]
    assert told["n"] == 15
    assert told["rank_correlation"] > 0.9
    assert list(told["best_by_flops"].values()) == sorted(told["best_by_flops"].values())


def test_the_verb_writes_points_that_give_the_same_fit(tmp_path):
    write_points(tmp_path / "study/points.jsonl", study(noise=0.002))
    first = fit_verb([tmp_path / "study"], tmp_path / "a", FitConfig(resamples=3))
    again = fit_verb([tmp_path / "a"], tmp_path / "b", FitConfig(resamples=3))
    assert first == again == json.loads((tmp_path / "b/scaling.json").read_text())
    assert (tmp_path / "a/scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "line",
    ['{"parameters": 1, "tokens": 2}', "[1]", "{", '{"parameters": -1, "tokens": 2, "loss": 1}',
     '{"parameters": 1, "tokens": 2, "loss": NaN}'],
)  # fmt: skip
def test_a_line_that_is_no_point_is_named(tmp_path, line):
    path = tmp_path / "points.jsonl"
    path.write_text('{"parameters": 1, "tokens": 2, "loss": 3}\n' + line + "\n")
    with pytest.raises(UserError, match=r"points\.jsonl:2"):
        read_points([path])


def test_what_holds_no_study_is_named(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        read_points([tmp_path])
    with pytest.raises(UserError, match="absent"):
        read_points([tmp_path / "absent"])
    points, _ = read_points([_points_file(tmp_path)])
    assert points == [Point("points:1", 10.0, 20.0, 6 * 200.0, 3.0)]


def _points_file(folder):
    path = folder / "points.jsonl"
    path.write_text('{"parameters": 10, "tokens": 20, "loss": 3}\n')
    return path


def test_fitting_by_the_command_line(tmp_path, monkeypatch, capsys):
    from nd_jax.cli import main

    write_points(tmp_path / "points.jsonl", study()[:5])
    monkeypatch.setattr(sys, "argv", ["nd", "scaling", "fit", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "5 points, at least 8" in capsys.readouterr().err
