"""The two questions: what they show and must not show, and how answers are read from written states."""

import json
import os
from pathlib import Path

import pytest

from nd_jax.debugger.actions import INV_STEP_CALL, STEP_RETURN, Action
from nd_jax.debugger.policy import Trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.evaluation.prompts import (
    Unanswered,
    call_text,
    input_question,
    output_question,
    read_input,
    read_output,
)
from nd_jax.language.render import render
from nd_jax.language.session import show
from nd_jax.language.symbols import STATE_END
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import Outcome
from nd_jax.tracing.recorder import TraceLimits, trace_program
from nd_jax.tracing.schema import Trace

CRUXEVAL = Path(os.environ.get("ND_DATA", "../shared/data")) / "cruxeval.jsonl"


def skip(trace: Trace, tokenizer, inverse: bool) -> list[int]:
    """The ids of the session that steps over the whole run at once, as it is trained."""
    tree = StateTree(trace)
    if inverse:
        walk = Trajectory(tree.last, ((Action(INV_STEP_CALL), 0),), ended=False, drop_pointer=True)
    else:
        walk = Trajectory(0, ((Action(STEP_RETURN), tree.last),), ended=False)
    return tokenizer.encode(render(show(tree, walk, tokenizer.spec)))[0]


def returning(traces: list[Trace]) -> list[Trace]:
    return [trace for trace in traces if trace.events[-1].kind == "return"]


def test_the_output_question_is_a_trained_session_without_its_last_state(traces, tokenizer):
    for trace in returning(traces):
        question = output_question(trace.source, trace.events[0], tokenizer)
        whole = skip(trace, tokenizer, inverse=False)
        assert whole[: len(question.ids)] == question.ids
        answer = whole[len(question.ids) :]
        assert answer.count(tokenizer.symbol_id(STATE_END)) == 1
        assert read_output(question, answer, tokenizer) == trace.events[-1].value


def test_the_input_question_is_a_trained_session_without_its_last_state(traces, tokenizer):
    for trace in returning(traces):
        question = input_question(trace.source, trace.events[-1].value or "", tokenizer)
        whole = skip(trace, tokenizer, inverse=True)
        assert whole[: len(question.ids)] == question.ids
        answer = whole[len(question.ids) :]
        texts = trace.events[0].locals.values()
        assert read_input(question, answer, tokenizer, trace.source, "f") == f"f({', '.join(texts)})"


def test_the_questions_in_words(tokenizer):
    source = "def f(a):\n    return a + 1\n"
    trace = trace_program(Program("p", source, "f", "2"), TraceLimits())
    assert isinstance(trace, Trace)
    program = [
        "<|begin_of_text|>",
        "<|trace_context_start|>",
        "<|line_1|>",
        "def f(a):\n",
        "<|line_2|>",
        "    return a + 1\n",
    ]

    def texts(question):
        return "".join(segment.text for segment in tokenizer.segments(question.ids)).removeprefix(
            "".join(program)
        )

    assert texts(output_question(source, trace.events[0], tokenizer)) == (
        "<|call_sep|><|line_1|>a=2\n<|frame_sep|><|step_return|>"
    )
    assert (
        texts(input_question(source, "3", tokenizer))
        == "<|return_sep|><|arg_sep|>3\n<|frame_sep|><|inv_step_call|>"
    )


class Blind:
    """A program that does not let its arguments be read."""

    def __init__(self, program: Program):
        self.id, self.source, self.entry, self.output = (
            program.id,
            program.source,
            program.entry,
            program.output,
        )

    @property
    def arguments(self) -> str:
        raise AssertionError("the input task read the input")


def test_the_input_task_never_reads_the_input(tokenizer):
    from nd_jax.evaluation.cruxeval import CruxevalConfig, answer

    class Silent:
        def generate(self, prompts, stop_ids, max_new, sampling, constraint):
            asked.append(prompts)
            return [[] for _ in prompts]

    asked: list[list[list[int]]] = []
    source = "def f(a):\n    return a + 1\n"
    config = CruxevalConfig(task="input", row_length=200)
    for arguments in ("2", "'something else'"):
        program = Blind(Program("p", source, "f", arguments, "3"))
        answer([program], [Outcome("p", None, "not asked")], tokenizer, Silent(), config)
    assert asked[0] == asked[1] != [[]]


def test_what_is_not_one_answer_is_counted_by_reason(traces, tokenizer):
    trace = traces[0]
    question = output_question(trace.source, trace.events[0], tokenizer)
    answer = skip(trace, tokenizer, inverse=False)[len(question.ids) :]
    call = skip(trace, tokenizer, inverse=True)
    backward = input_question(trace.source, "3", tokenizer)
    for ids, reason in (
        ([], "unreadable state"),
        (answer[:-1], "unreadable state"),
        (answer * 2, "unreadable state"),
        ([10**6], "unreadable state"),
        ([-1], "unreadable state"),
        (call[len(backward.ids) :], "another event"),
    ):
        with pytest.raises(Unanswered) as caught:
            read_output(question, ids, tokenizer)
        assert caught.value.reason == reason


def test_programs_that_the_tokenizer_cannot_write_are_named(tokenizer):
    with pytest.raises(Unanswered, match="too many lines"):
        input_question("def f():\n" + "    pass\n" * 40, "None", tokenizer)
    with pytest.raises(Unanswered, match="line break in value"):
        input_question("def f():\n    pass\n", "a\nb", tokenizer)
    with pytest.raises(Unanswered, match="surrogate"):
        input_question("def f():\n    pass\n", "'\ud800'", tokenizer)


def test_a_call_follows_the_signature():
    source = "def f(a, /, b, *rest, c, d=1, **more):\n    pass\n"
    bindings = {"a": "1", "b": "[2]", "c": "3", "d": "4", "rest": "(5, 6)", "more": "{'x': 7}"}
    assert call_text(source, "f", bindings) == "f(1, [2], *(5, 6), c=3, d=4, **{'x': 7})"
    assert call_text("def f():\n    pass\n", "f", {}) == "f()"
    assert call_text("def f(a):\n    pass\ndef f(b):\n    pass\n", "f", {"b": "1"}) == "f(1)"
    for wrong in ({}, {"a": "1", "x": "2"}):
        with pytest.raises(Unanswered, match="other parameters"):
            call_text("def f(a):\n    pass\n", "f", wrong)
    with pytest.raises(Unanswered, match="defines no g"):
        call_text("def f(a):\n    pass\n", "g", {"a": "1"})
    with pytest.raises(Unanswered, match="not Python"):
        call_text("def f(a:\n", "f", {"a": "1"})


@pytest.mark.skipif(not CRUXEVAL.exists(), reason=f"needs {CRUXEVAL}")
def test_every_cruxeval_question_can_be_asked_backwards(tokenizer):
    rows = [json.loads(line) for line in CRUXEVAL.read_text(encoding="utf-8").splitlines()]
    short = [row for row in rows if len(row["code"].split("\n")) <= tokenizer.spec.lines]
    assert len(short) > 790
    for row in short:
        question = input_question(row["code"], row["output"], tokenizer)
        assert question.ids[0] == tokenizer.bos
