"""CRUXEval as a whole: asking, reading predictions, scoring, writing."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from nd_jax.decoding.choosing import Sampling
from nd_jax.decoding.engine import Generation
from nd_jax.errors import UserError
from nd_jax.evaluation import cruxeval
from nd_jax.evaluation.cruxeval import Answers, CruxevalConfig
from nd_jax.language.render import History, render_state
from nd_jax.language.session import ShownState
from nd_jax.language.symbols import STATE_END
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import Outcome, WorkerLimits

CRUXEVAL = Path(os.environ.get("ND_DATA", "../shared/data")) / "cruxeval.jsonl"
LIMITS = WorkerLimits(cpu_s=1, wall_s=2.0, memory_mb=256)
CONFIG = CruxevalConfig(row_length=160, max_new=50, workers=1, limits=LIMITS)
INPUT = replace(CONFIG, task="input")
PROGRAMS = [
    Program("a", "def f(x, y):\n    return x + y\n", "f", "1, y = 0x2", "3"),
    Program("b", "def f(s):\n    return s[::-1]\n", "f", "'ab'", "'ba'"),
    Program("loops", "def f(x):\n    while x: pass\n", "f", "1", "None"),
    Program("long", "def f(x):\n" + "    x = x + 'some text'\n" * 20 + "    return 0\n", "f", "''", "0"),
    Program("lines", "def f():\n" + "    pass\n" * 40, "f", "", "None"),
]


class Scripted:
    """A decoder that writes given states, whatever it is asked."""

    def __init__(self, tokenizer, states: list[ShownState | None]):
        self.tokenizer, self.states, self.asked = tokenizer, states, []

    def generate(self, prompts, stop_ids, max_new, sampling, constraint):
        assert list(stop_ids) == [self.tokenizer.symbol_id(STATE_END)]
        assert max_new == 50
        self.asked = prompts
        history = History(("", ""))
        history.see(ShownState("call", 1, 0, {}, None))
        said = [
            Generation(self.tokenizer.encode(render_state(state, history))[0] if state else [], [])
            for state in self.states
        ]
        n = sampling.samples
        return [said[k : k + n] for k in range(0, len(said), n)]


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return cruxeval.run_all(PROGRAMS, CONFIG)


def returning(value: str) -> ShownState:
    return ShownState("return", 2, 0, None, value)


def test_the_output_task_from_question_to_score(tokenizer, outcomes):
    decoder = Scripted(tokenizer, [returning("3"), returning("'xx'")])
    answers = cruxeval.answer(PROGRAMS, outcomes, tokenizer, decoder, CONFIG)
    shown = "".join(segment.text for segment in tokenizer.segments(decoder.asked[0]))
    assert shown.endswith("x=1\ny=2\n<|frame_sep|><|step_return|>")  # the arguments as values
    result = cruxeval.score(PROGRAMS, outcomes, answers, CONFIG)
    groups = result.figures.pop("breakdown")
    low, high = result.figures.pop("official_95")
    assert low == 0.0 < 0.2 < high
    assert result.figures == {
        "task": "output", "n": 5, "official": 0.2, "strict": 0.2, "exact": 0.2, "samples": 1,
        "pass_at": {"1": {"official": 0.2, "strict": 0.2, "exact": 0.2}},
        "baselines": {
            "first_argument": {"official": 0.0, "strict": 0.0, "exact": 0.0},
            "most_frequent": {"official": 0.4, "strict": 0.4, "exact": 0.4},
            "empty": {"official": 0.0, "strict": 0.0, "exact": 0.0},
        },
        "unanswered": {"not recorded: too many events": 1, "question too long": 1, "too many lines": 1},
        "flags": {},
    }  # fmt: skip
    assert {kind: {name: (scores["n"], scores["official"]) for name, scores in rows.items()}
            for kind, rows in groups.items()} == {
        "type": {"NoneType": (2, 0.0), "int": (2, 0.5), "str": (1, 0.0)},
        "steps": {" 0- 4": (2, 0.5), "15-29": (1, 0.0), "30+": (1, 0.0), "unknown": (1, 0.0)},
        "exceptions": {"none": (4, 0.25), "unknown": (1, 0.0)},
        "length": {" 0- 4": (5, 0.2)},
    }  # fmt: skip
    (wrong,) = result.wrong
    assert wrong["title"] == "b (output)"
    assert "'xx'" in wrong["answer"]
    assert "returns 'ba'" in wrong["trace"]
    assert result.generations == {"a": ["3"], "b": ["'xx'"], "loops": [""], "long": [""], "lines": [""]}
    assert result.rows[0] == {
        "id": "a", "task": "output", "answer": "3", "reference": "3",
        "official": True, "strict": True, "exact": True, "reason": None,
    }  # fmt: skip
    assert result.rows[3]["answer"] is None
    assert result.rows[3]["reason"].startswith("question too long: ")


def test_the_input_task_from_question_to_score(tokenizer, outcomes):
    states = [ShownState("call", 1, 0, {"x": "3", "y": "0"}, None), returning("1"), None]
    answers = cruxeval.answer(PROGRAMS, outcomes, tokenizer, Scripted(tokenizer, states), INPUT)
    assert answers.texts == [["f(3, 0)"], [], [], [], []]
    result = cruxeval.score(PROGRAMS, outcomes, answers, INPUT)
    assert [result.figures[name] for name in ("task", "n", "official", "strict", "exact")] == [
        "input",
        5,
        0.2,
        0.2,
        0.0,
    ]
    assert result.figures["unanswered"] == {
        "another event": 1, "unreadable state": 1, "question too long": 1, "too many lines": 1,
    }  # fmt: skip
    assert result.rows[0]["reference"] == "f(1, y = 0x2)"
    assert set(result.figures["baselines"]) == {"output", "most_frequent", "empty"}


def test_without_a_question_that_fits_nothing_is_decoded(tokenizer, outcomes):
    short = replace(INPUT, row_length=5)
    answers = cruxeval.answer(PROGRAMS[:2], outcomes[:2], tokenizer, Scripted(tokenizer, []), short)
    figures = cruxeval.score(PROGRAMS[:2], outcomes[:2], answers, INPUT).figures
    assert figures["unanswered"] == {"question too long": 2}


def test_drawn_answers_count_by_pass_at_k(tokenizer, outcomes):
    drawn = replace(CONFIG, sampling=Sampling(temperature=0.8, samples=3), pass_at=(1, 2, 3))
    said = [returning("3"), returning("4"), None, None, None, None]
    answers = cruxeval.answer(PROGRAMS[:2], outcomes[:2], tokenizer, Scripted(tokenizer, said), drawn)
    assert answers.texts == [["3", "4", ""], []]
    assert answers.samples == 3
    result = cruxeval.score(PROGRAMS[:2], outcomes[:2], answers, drawn)
    passed = {k: scores["official"] for k, scores in result.figures["pass_at"].items()}
    assert passed == pytest.approx({"1": 1 / 6, "2": 1 / 3, "3": 1 / 2})
    assert result.generations == {"a": ["3", "4", ""], "b": ["", "", ""]}
    with pytest.raises(UserError, match="pass@5 cannot be estimated from 3 answers"):
        cruxeval.score(PROGRAMS[:2], outcomes[:2], answers, replace(drawn, pass_at=(5,)))


def test_several_answers_count_by_their_mean(outcomes):
    answers = Answers([["3", "4", "3.0", "2 or 1"], ["'ba'"]], {}, 4)
    figures = cruxeval.score(PROGRAMS[:2], outcomes[:2], answers, CONFIG).figures
    assert (figures["official"], figures["strict"]) == (0.75, 0.625)
    assert figures["flags"] == {"not a literal": 1}


def test_predictions_in_the_official_form(tmp_path, outcomes):
    path = tmp_path / "predictions.json"
    path.write_text(json.dumps({"b": ["f('ab')"], "a": ["f(1, 1)", "f(1, 2)"]}))
    answers = cruxeval.read_predictions(path, PROGRAMS[:3])
    assert answers == Answers([["f(1, 1)", "f(1, 2)"], ["f('ab')"], []], {2: ("no prediction", "")}, 2)
    figures = cruxeval.score(PROGRAMS[:3], outcomes[:3], answers, INPUT).figures
    assert figures["official"] == 0.5
    assert figures["unanswered"] == {"no prediction": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "found a list"),
        ('{"a": "3"}', "a: expected a list of texts"),
        ('{"a": [3]}', "a: expected a list of texts"),
        ('{"z": ["3"]}', "1 ids are not in the data, such as 'z'"),
    ],
)
def test_predictions_of_another_form_are_refused(tmp_path, text, message):
    path = tmp_path / "predictions.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        cruxeval.read_predictions(path, PROGRAMS)


def test_missing_predictions_are_refused(tmp_path):
    with pytest.raises(UserError, match="cannot read predictions"):
        cruxeval.read_predictions(tmp_path / "none.json", PROGRAMS)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"code": "def f(): pass", "input": ""}'], "states no output"),
        (
            ['{"code": "def f(): pass", "input": "", "output": "None", "id": "a"}'] * 2,
            "two programs have the id a",
        ),
        (["{"], "data.jsonl:1: malformed JSON"),
        ([], "no programs"),
    ],
)
def test_data_that_cannot_be_scored_are_refused(tmp_path, lines, message):
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match=message):
        cruxeval.load(path)


def test_everything_is_written_and_the_generations_score_the_same_again(tmp_path, outcomes):
    answers = Answers([["f(2, 1)"], ["f('\ud800')"], []], {2: ("unreadable state", "")})
    result = cruxeval.score(PROGRAMS[:3], outcomes[:3], answers, replace(INPUT, official=True))
    cruxeval.write(result, tmp_path / "scores")
    assert json.loads((tmp_path / "scores/cruxeval-input.json").read_text()) == result.figures
    assert json.loads((tmp_path / "scores/cruxeval-input-wrong.json").read_text()) == result.wrong
    harness = json.loads((tmp_path / "scores/cruxeval-input-harness.json").read_text())
    assert harness == result.harness
    assert harness["pass_at_1"] == result.figures["harness"]["pass_at_1"] == pytest.approx(100 / 3)
    rows = (tmp_path / "scores/cruxeval-input.jsonl").read_text().splitlines()
    assert [json.loads(row) for row in rows] == result.rows
    assert "| input: model | 3 | 0.333 |" in (tmp_path / "scores/cruxeval-input.md").read_text()
    again = cruxeval.read_predictions(tmp_path / "scores/cruxeval-input-generations.json", PROGRAMS[:3])
    scores = cruxeval.score(PROGRAMS[:3], outcomes[:3], again, INPUT).figures
    assert [scores[name] for name in cruxeval.VERDICTS] == [
        result.figures[name] for name in cruxeval.VERDICTS
    ]


@pytest.mark.skipif(not CRUXEVAL.exists(), reason=f"needs {CRUXEVAL}")
def test_reference_answers_score_all_and_baselines_what_is_known(tmp_path):
    programs = cruxeval.load(CRUXEVAL)
    path = tmp_path / "gold.json"
    path.write_text(json.dumps({program.id: [program.output] for program in programs}))
    unrecorded = [Outcome(program.id, None, "not asked") for program in programs]
    official = replace(CONFIG, official=True)
    answers = cruxeval.read_predictions(path, programs)
    figures = cruxeval.score(programs, unrecorded, answers, official).figures
    assert figures["harness"]["pass_at_1"] == 100.0
    assert (figures["n"], figures["official"], figures["strict"], figures["exact"]) == (800, 1.0, 1.0, 1.0)
    assert figures["baselines"]["first_argument"]["official"] == pytest.approx(0.174, abs=5e-4)
