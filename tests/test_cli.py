"""The command line from end to end on a tiny scale, and what it says to a user's mistakes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from run_verb import nd

from nd_jax.cli import VERBS

ROOT = Path(__file__).parent.parent
SIZES = {
    "d_model": 32,
    "n_layers": 1,
    "n_heads": 2,
    "n_kv_heads": 2,
    "head_dim": 8,
    "d_ff": 32,
    "vocab_size": 512,
}
TINY = [word for name, size in SIZES.items() for word in (f"--model.{name}", size)]
TINY += ["--data.global_batch", 8, "--mesh.fsdp", 8]
CRUXEVAL = [
    {"code": "def f(x):\n    return x + 1", "input": "1", "output": "2", "id": "sample_0"},
    {"code": "def f(s, n):\n    return s * n", "input": "'ab', 2", "output": "'abab'", "id": "sample_1"},
]


def figures(path: Path):
    return json.loads(path.read_text())


def train(out: Path, steps: int) -> None:
    """Train a tiny model in ``out / "run"``."""
    data = ("--data.traces", out / "traces", "--data.tokenizer", out / "tokenizer")
    nd("train", ROOT / "configs/nano.py", "--out", out / "run", *data, "--train.steps", steps,
       "--json", out / "train.json", *TINY)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A directory with traces, a tokenizer, and a run of three steps, made by the verbs."""
    out = tmp_path_factory.mktemp("made")
    nd("trace", "--synthetic", 300, "--out", out / "traces", "--json", out / "trace.json")
    sizes = ("--vocab-size", 512, "--lines", 64, "--frames", 16)
    nd("tokenizer", "train", "--traces", out / "traces", *sizes, "--out", out / "tokenizer",
       "--json", out / "tokenizer.json")  # fmt: skip
    train(out, steps=3)
    (out / "cruxeval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in CRUXEVAL))
    return out


def test_traces_and_tokenizer(made, capsys):
    assert figures(made / "trace.json") == {"recorded": 300, "dropped": {}}
    assert figures(made / "tokenizer.json")["vocab_size"] == 512
    nd("tokenizer", "evaluate", "--tokenizer", made / "tokenizer", "--traces", made / "traces",
       "--json", made / "evaluated.json")  # fmt: skip
    evaluated = figures(made / "evaluated.json")
    assert evaluated["traces"] == 300
    assert evaluated["roundtrip_failures"] == 0
    assert evaluated["tokens_mean"] < evaluated["tokens_p95"]
    capsys.readouterr()
    nd("trace", "show", made / "traces", "--index", 3)
    assert "return" in capsys.readouterr().out


def test_shown_traces_come_back_by_import(made, capsys, tmp_path):
    capsys.readouterr()
    for index in range(3):
        nd("trace", "show", made / "traces", "--index", index, "--format", "json")
    (tmp_path / "some.jsonl").write_text(capsys.readouterr().out + '{"schema": 1}\n')
    nd(
        "trace",
        "import",
        tmp_path / "some.jsonl",
        "--out",
        tmp_path / "back",
        "--json",
        tmp_path / "back.json",
    )
    back = figures(tmp_path / "back.json")
    assert back["recorded"] == 3
    assert sum(back["dropped"].values()) == 1


def test_states(made):
    nd("eval", "states", "--traces", made / "traces", "--checkpoint", made / "run", "--sessions", 40,
       "--json", made / "states.json")  # fmt: skip
    states = figures(made / "states.json")
    for scores in (states["by_action"]["step_into"], states["baselines"]["step_into"]):
        assert {"n", "state", "event_line", "bindings", "value"} <= scores.keys()
    assert list((made / "run/eval").glob("states-*.md"))


@pytest.mark.parametrize("task", ["output", "input"])
def test_cruxeval(made, task):
    shared = (
        "eval",
        "cruxeval",
        "--data",
        made / "cruxeval.jsonl",
        "--task",
        task,
        "--json",
        made / "c.json",
    )
    nd(*shared, "--checkpoint", made / "run", "--max-new", 8)
    scores = figures(made / "c.json")
    assert (scores["task"], scores["n"]) == (task, 2)
    assert {"official", "strict", "exact", "baselines"} <= scores.keys()
    gold = {"output": ["2", "'abab'"], "input": ["f(1)", "f('ab', 2)"]}[task]
    answers = {row["id"]: [answer] for row, answer in zip(CRUXEVAL, gold, strict=True)}
    (made / "gold.json").write_text(json.dumps(answers))
    nd(*shared, "--predictions", made / "gold.json", "--out", made / "gold")
    scores = figures(made / "c.json")
    assert (scores["official"], scores["strict"], scores["exact"]) == (1.0, 1.0, 1.0)


def test_sampled_and_constrained_answers_and_the_report(made):
    drawn = ("--temperatures", 0.8, "--samples", 2, "--pass-at", 1, 2)
    nd("eval", "cruxeval", "--data", made / "cruxeval.jsonl", "--task", "output", "--max-new", 8, *drawn,
       "--constrained", "--official", "--checkpoint", made / "run", "--json", made / "c.json")  # fmt: skip
    scores = figures(made / "c.json")
    assert set(scores["sampled"]["0.8"]["pass_at"]) == {"1", "2"}
    assert scores["sampled"]["0.8"]["decoding"]["tokens"] > 0
    assert {"official", "strict", "exact"} <= scores["constrained"].keys()
    assert set(scores["harness"]) == {"pass_at_1", "pass_at_5"}
    generations = figures(made / "run/eval/cruxeval-output-t0.8-generations.json")
    assert [len(answers) for answers in generations.values()] == [2, 2]
    nd("eval", "report", made / "run", "--out", made / "page")
    assert "CRUXEval" in (made / "page/report.html").read_text()


def test_training_goes_on_where_it_stopped(made, capsys):
    capsys.readouterr()
    train(made, steps=4)
    assert "Resuming from" in capsys.readouterr().out
    assert figures(made / "train.json")["step"] == 4


def test_an_exported_model_comes_back(made, tmp_path):
    nd("export", made / "run", "--out", tmp_path / "out", "--json", tmp_path / "export.json")
    assert figures(tmp_path / "export.json")["layout"] == "Qwen3"
    nd("import", tmp_path / "out", "--out", tmp_path / "again", "--json", tmp_path / "import.json")
    assert figures(tmp_path / "import.json")["step"] >= 3
    nd("export", tmp_path / "again", "--out", tmp_path / "twice")
    for name in ("model.safetensors", "tokenizer.json", "config.json", "nd_run.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trase", "no verb 'trase'"),
        ("corpus bild", "no verb 'corpus bild'"),
        ("trace --programs absent.jsonl --out {tmp}/x", "absent.jsonl"),
        ("trace show {tmp}", "nd trace"),
        ("tokenizer evaluate --tokenizer {tmp} --traces {tmp}", "{tmp}"),
        ("eval states --traces {made}/traces --checkpoint {tmp}", "{tmp}"),
        ("eval cruxeval --data {made}/cruxeval.jsonl --predictions x --checkpoint {tmp}", "--task"),
        ("eval cruxeval --data {made}/cruxeval.jsonl --pass-at 5 --checkpoint {tmp}", "--temperatures"),
        ("eval cruxeval --data x --pass-at 5 --temperatures 0.2 --samples 4", "from 4 samples"),
        ("eval report {tmp}", "no results there"),
        ("export {tmp} --out {tmp}/x", "no checkpoint"),
        ("import {tmp} --out {tmp}/x", "nd_run.json"),
        ("scaling fit {tmp}", "holds no run"),
        ("scaling ladder {root}/configs/nano.py", "no top-level"),
        ("train {root}/configs/ladder.py:x", "no experiment 'x'"),
        ("train absent.py", "absent.py"),
        ("train {root}/configs/nano.py --train.stepz 3", "--train.steps"),
        ("train {root}/configs/nano.py --train.steps many", "--train.steps"),
        ("train {root}/configs/nano.py --data.traces {tmp} --data.tokenizer {made}/tokenizer", "{tmp}"),
        ("train {root}/configs/nano.py --out {made}/run --data.traces {made}/traces --data.tokenizer "
         "{made}/tokenizer --data.global_batch 8 --model.vocab_size 512", "d_model"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_without_a_traceback(made, tmp_path, words, message, capsys):
    places = {"made": made, "tmp": tmp_path, "root": ROOT}
    with pytest.raises(SystemExit) as stopped:
        nd(*words.format(**places).split())
    assert stopped.value.code == 2
    shown = "".join(capsys.readouterr())
    assert re.sub(r"\s", "", message.format(**places)) in re.sub(r"[\s│]", "", shown)
    assert "Traceback" not in shown


def test_help_starts_without_jax():
    code = "import sys; from nd_jax import cli; cli.main()\n"
    check = f"import atexit, sys; atexit.register(lambda: print('jax' in sys.modules)); {code}"
    for words in (["--help"], ["trace", "--help"], ["train", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", check, *words], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip().endswith("False")
        assert "usage: nd" in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_can_be_asked(verb, capsys):
    with pytest.raises(SystemExit) as stopped:
        nd(*verb.split(), "--help")
    assert not stopped.value.code
    assert f"nd {verb}" in capsys.readouterr().out
