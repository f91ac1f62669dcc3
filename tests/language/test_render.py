import pytest

from nd_jax.debugger.actions import BREAKPOINT, INV_STEP_CALL, STEP_INTO, STEP_RETURN, Action
from nd_jax.language.render import History, render, render_prompt, render_state
from nd_jax.language.session import Session, ShownState, Unrenderable
from nd_jax.language.symbols import Role

CONTEXT = ("def f(x):", "    y = x", "    return y")
CALLED = ShownState("call", 1, 0, {"x": "1"}, None)


def text_of(session: Session) -> str:
    return "".join(segment.text for segment in render(session))


def test_the_form_of_a_document():
    session = Session(
        CONTEXT,
        (
            CALLED,
            ShownState("line", 2, 0, {"x": "1"}, None),
            ShownState("line", 3, 0, {"x": "2", "y": "1"}, None),
            ShownState("line", 1, 1, {"z": "0"}, None),
            ShownState("line", 2, 0, {"y": "1"}, None),
            ShownState("exception", 2, 0, None, "KeyError(1)"),
            ShownState("unwind", 3, 0, None, None),
        ),
        (
            Action(STEP_INTO),
            Action(BREAKPOINT, (2, 3)),
            Action(STEP_INTO),
            Action(STEP_INTO),
            Action(STEP_INTO),
            Action(STEP_RETURN),
        ),
        ended=True,
    )
    assert text_of(session) == (
        "<|begin_of_text|><|trace_context_start|>"
        "<|line_1|>def f(x):\n<|line_2|>    y = x\n<|line_3|>    return y\n"
        "<|call_sep|><|line_1|>x=1\n<|frame_sep|>"
        "<|step_into|><|line_sep|><|line_2|><|frame_sep|>"
        "<|breakpoint|><|line_2|><|line_3|><|line_sep|><|line_3|>x=2\ny=1\n<|frame_sep|>"
        "<|step_into|><|line_sep|><|line_1|><|frame_1|>z=0\n<|frame_sep|>"
        "<|step_into|><|line_sep|><|line_2|><|frame_0|><|del_sep|>x\n<|frame_sep|>"
        "<|step_into|><|exception_sep|><|line_2|><|arg_sep|>KeyError(1)\n<|frame_sep|>"
        "<|step_return|><|unwind_sep|><|line_3|><|frame_sep|><|end_of_text|>"
    )


def test_roles():
    session = Session(CONTEXT, (CALLED, CALLED), (Action(BREAKPOINT, (2,)),), ended=True)
    roles = [segment.role for segment in render(session)]
    assert roles == [Role.CONTEXT] * 8 + [Role.STATE] * 5 + [Role.ACTION] * 2 + [Role.STATE] * 6


def test_changes_are_told_by_text():
    session = Session(
        ("a",),
        tuple(
            ShownState("line", 1, 0, {"x": text}, None) for text in ("1", "True", "1.0", "1.0", "0.0", "-0.0")
        ),
        (Action(STEP_INTO),) * 5,
        ended=False,
    )
    assert [s.text for s in render(session) if s.kind == "value"] == [
        "1\n",
        "True\n",
        "1.0\n",
        "0.0\n",
        "-0.0\n",
    ]


def test_a_call_shows_every_argument_again():
    states = (ShownState("line", 1, 0, {"x": "1"}, None), CALLED)
    assert text_of(Session(CONTEXT, states, (Action("inv_step_into"),), False)).count("x=1") == 2


def test_a_resume_shows_what_changed_since_the_frame_was_last_shown():
    states = (
        ShownState("call", 1, 0, {"x": "1"}, None),
        ShownState("yield", 1, 0, None, "1"),
        ShownState("resume", 1, 0, {"x": "1", "y": "2"}, None),
    )
    text = text_of(Session(CONTEXT, states, (Action(STEP_INTO),) * 2, False))
    assert text.endswith("<|resume_sep|><|line_1|>y=2\n<|frame_sep|>")


def test_prompts_of_the_two_cruxeval_tasks():
    output = render_prompt(Session(CONTEXT, (CALLED,), (), True), Action(STEP_RETURN))
    assert "".join(s.text for s in output[8:]) == "<|call_sep|><|line_1|>x=1\n<|frame_sep|><|step_return|>"
    returned = ShownState("return", None, 0, None, "1")
    prompt = render_prompt(Session(CONTEXT, (returned,), (), False), Action(INV_STEP_CALL))
    assert "".join(s.text for s in prompt[8:]) == "<|return_sep|><|arg_sep|>1\n<|frame_sep|><|inv_step_call|>"


@pytest.mark.parametrize(
    "state",
    [
        ShownState("return", 1, 0, None, "a\nb"),
        ShownState("return", 1, 0, None, "a\rb"),
        ShownState("line", 1, 0, {"x": "a\nb"}, None),
        ShownState("line", 1, 0, {"x=": "1"}, None),
        ShownState("line", 1, 0, {".0": "1"}, None),
        ShownState("line", 4, 0, {}, None),
        ShownState("line", 0, 0, {}, None),
        ShownState("line", None, 0, {}, None),
        ShownState("line", 1, 1, {}, None),
        ShownState("line", 1, 0, None, None),
        ShownState("line", 1, 0, {}, "1"),
        ShownState("return", 1, 0, None, None),
        ShownState("return", 1, 0, {}, "1"),
        ShownState("unwind", 1, 0, None, "1"),
    ],
)
def test_states_that_have_no_place_are_refused(state: ShownState):
    with pytest.raises(Unrenderable):
        render(Session(CONTEXT, (state,), (), False))


def test_only_the_first_state_may_lack_a_line():
    history = History(("",) * 3)
    state = ShownState("return", None, 0, None, "1")
    assert render_state(state, history)
    history.see(state)
    with pytest.raises(Unrenderable, match="no line"):
        render_state(state, history)


@pytest.mark.parametrize(
    "action",
    [Action(STEP_INTO, (1,)), Action(BREAKPOINT), Action(BREAKPOINT, (4,)), Action(BREAKPOINT, (0,))],
)
def test_actions_that_have_no_place_are_refused(action: Action):
    with pytest.raises(Unrenderable):
        render(Session(CONTEXT, (CALLED, CALLED), (action,), False))


@pytest.mark.parametrize("line", ["a\n", "a\rb"])
def test_a_line_of_the_program_is_one_line(line: str):
    with pytest.raises(Unrenderable, match="line break"):
        render(Session((line,), (), (), False))
