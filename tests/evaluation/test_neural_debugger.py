"""A debugger session that the model answers is what decoding gives; the shell says where it is wrong."""

import io
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from nd_jax.debug import Shell, read_program
from nd_jax.debugger.actions import INV_STEP_INTO, STEP_INTO, STEP_OVER, Action
from nd_jax.debugger.policy import full_walk
from nd_jax.debugger.tree import StateTree
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.decoding.grammar import Constraint, Grammar
from nd_jax.decoding.neural_debugger import NeuralDebugger
from nd_jax.decoding.session import DebugSession
from nd_jax.errors import UserError
from nd_jax.evaluation.verbs import Model
from nd_jax.language.parse import parse_state
from nd_jax.language.render import History, render_prompt, render_state
from nd_jax.language.session import Session, ShownState, show
from nd_jax.language.symbols import STATE_END
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import load_config

NANO = Path(__file__).parents[2] / "configs" / "nano.py"
INTO = Action(STEP_INTO)


@pytest.fixture(scope="module")
def model(tokenizer) -> Model:
    """One that knows nothing, with weights by which some of what it writes is a state."""
    config = ModelConfig(vocab_size=tokenizer.vocab_size, d_model=16, n_layers=1, head_dim=8, d_ff=16)
    rng = np.random.default_rng(3)
    shapes = nnx.to_pure_dict(transformer.abstract(config)[1])
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    experiment = load_config(str(NANO))
    object.__setattr__(experiment, "model", config)
    return Model(Path("nowhere"), experiment, params, tokenizer)


@pytest.fixture
def opened(model, traces):
    """Opens a session of the model at the first state of the first trace."""
    shown = walk(traces[0], model.tokenizer)

    def open_(max_length: int = 400, start: ShownState = shown.states[0]) -> NeuralDebugger:
        config, params = model.experiment.model, model.params
        return NeuralDebugger(config, params, model.tokenizer, shown.context, start, max_length, 40)

    return open_


def walk(trace, tokenizer) -> Session:
    tree = StateTree(trace)
    return show(tree, full_walk(tree, STEP_INTO), tokenizer.spec)


def decoded(model: Model, session: Session, action: Action) -> ShownState | None:
    """The state that the batched decoder writes after the same session."""
    history = History(session.context, states=session.states)
    decoder = Decoder(model.experiment.model, model.params, DecodeConfig(2, 1, (512,), 40))
    prompt = model.tokenizer.encode(render_prompt(session, action))[0]
    constraint = Constraint(Grammar(model.tokenizer), [history])
    stop = [model.tokenizer.symbol_id(STATE_END)]
    ids = decoder.generate([prompt], stop, constraint=constraint)[0][0].ids
    return parse_state(model.tokenizer.segments(ids), history).state


def test_every_state_is_what_decoding_gives_also_after_undo_and_correction(model, opened, traces):
    debugger, real = opened(), walk(traces[0], model.tokenizer)

    def ask(action: Action) -> ShownState | None:
        """What the model answers, or None where it writes no state; held to the batched decoder."""
        before = Session(debugger.context, tuple(debugger.states), tuple(debugger.actions), ended=False)
        wanted = decoded(model, before, action)
        if wanted is None:
            with pytest.raises(UserError, match="is no state"):
                debugger.do(action)
            assert debugger.states == list(before.states)
        else:
            assert debugger.do(action) == wanted == debugger.state
        return wanted

    answers = [ask(INTO), ask(Action(STEP_OVER)), ask(INTO)]
    assert any(answers), "this model writes no states at all"
    debugger.replace(real.states[1])
    ask(Action(STEP_OVER))
    while debugger.actions:
        debugger.undo()
    debugger.replace(real.states[0])
    assert ask(INTO) == answers[0]
    while debugger.actions:
        debugger.undo()
    with pytest.raises(UserError, match="began here"):
        debugger.undo()


def answering(monkeypatch, tokenizer, shown: Session, order: list[int]) -> None:
    """Let the model write the session's states of these numbers, one after the other."""
    numbers = iter(order)

    def generate(session, stops, limit, constraint) -> list[int]:
        ids, _ = tokenizer.encode(render_state(shown.states[next(numbers)], constraint.shown[0]))
        session.ids.extend(ids)
        return ids

    monkeypatch.setattr(DebugSession, "generate", generate)


def test_a_session_without_room_begins_anew_where_it_stands(monkeypatch, model, opened, traces):
    shown = walk(traces[0], model.tokenizer)
    answering(monkeypatch, model.tokenizer, shown, list(range(1, 9)))
    prompt, _ = model.tokenizer.encode(
        render_prompt(shown._replace(states=shown.states[:3], actions=(INTO,) * 2), INTO)
    )
    debugger = opened(max_length=len(prompt) + 39)  # the third action has no room
    assert [debugger.do(INTO), debugger.do(INTO)] == list(shown.states[1:3])
    assert len(debugger.states) == 3
    assert debugger.do(INTO) == shown.states[3]
    assert debugger.states == list(shown.states[2:4])
    stood = list(debugger.states)
    monkeypatch.setattr(DebugSession, "generate", lambda *_, **__: [])
    for action in (INTO, Action(STEP_OVER)):
        with pytest.raises(UserError, match="is no state"):
            debugger.do(action)
        assert debugger.states == stood
    monkeypatch.undo()
    with pytest.raises(UserError, match="more than the 60 that this model"):
        opened(max_length=60).do(INTO)


def test_there_is_no_way_on_from_the_ends(opened, traces, model):
    with pytest.raises(UserError, match="begins here"):
        opened().do(Action(INV_STEP_INTO))
    with pytest.raises(UserError, match="ends here"):
        opened(start=walk(traces[0], model.tokenizer).states[-1]).do(INTO)


def run_shell(model: Model, trace, words: str, backwards: bool = False) -> list[str]:
    """What the shell prints, by command."""
    shell = Shell(model, trace, backwards)
    shell.use_rawinput, shell.stdin, shell.stdout = (
        False,
        io.StringIO(words.replace(" ", "\n").replace("_", " ")),
        io.StringIO(),
    )
    shell.cmdloop()
    return shell.stdout.getvalue().split("(nd) ")


def test_the_shell_steps_compares_corrects_and_counts(monkeypatch, model, traces):
    shown = walk(traces[0], model.tokenizer)
    answering(monkeypatch, model.tokenizer, shown, [1, 2, 2, 4])
    printed = run_shell(model, traces[0], "s n s correct p_total p_nothing s l b_3 b_99 cl what undo q")
    (
        greeting,
        first,
        second,
        wrong,
        corrected,
        total,
        nothing,
        last,
        listing,
        points,
        bad,
        none,
        what,
        undo,
        bye,
    ) = printed
    assert "f([1, 5, 2], 3), at its call" in greeting
    assert "call, line 1, frame 0: def f(items, limit):   [items = [1, 5, 2]; limit = 3]" in greeting
    assert first.startswith("line, line 2, frame 0: total = 0")
    assert "really" not in first
    assert "really" not in second
    assert wrong.startswith("line, line 3")
    assert "really: line, line 4, frame 0: if item > limit:" in wrong
    assert corrected.startswith("line, line 4")
    assert total == "0\n"
    assert "'nothing' is not bound here: items, limit, total, item" in nothing
    assert last.startswith("line, line 6")
    assert "really" not in last
    assert "   6 ->         total += item" in listing
    assert points == "breakpoints: 3\n"
    assert "'99' is no line of the program: 1 to 7" in bad
    assert none == "breakpoints: none\n"
    assert "no command 'what'" in what
    assert undo.startswith("line, line 4")
    assert bye == "3 of 4 states were the real ones\n"


def test_the_shell_goes_backwards_from_the_end_and_says_where_the_program_does(monkeypatch, model, traces):
    shown = walk(traces[0], model.tokenizer)
    answering(monkeypatch, model.tokenizer, shown, [len(shown.states) - 2, 0, 1])
    printed = run_shell(model, traces[0], "rs rc rs c", backwards=True)
    assert "return, line 7, frame 0: return total   [3]" in printed[0]
    assert printed[1].startswith("line, line 7")
    assert "really" not in printed[1]
    assert printed[2].startswith("call, line 1")
    assert "really" not in printed[2]
    assert printed[3] == "the program begins here\n"
    assert "really: return, line 7" in printed[4]
    assert printed[-1] == "2 of 3 states were the real ones\n"


@pytest.mark.parametrize("call", ["f(", "f", "1", "a.f()", "f(1) + 1", "f\0"])
def test_what_is_no_call_is_refused(tmp_path, call):
    (tmp_path / "p.py").write_text("def f(): pass\n")
    with pytest.raises(UserError, match="is not a call"):
        read_program(tmp_path / "p.py", call)


def test_a_call_is_taken_apart(tmp_path):
    (tmp_path / "p.py").write_text("def f(*a, **k): pass\n")
    program = read_program(tmp_path / "p.py", " f ([1, (2)], key=')') ")
    assert (program.entry, program.arguments) == ("f", "[1, (2)], key=')'")
    with pytest.raises(UserError, match="cannot be read"):
        read_program(tmp_path / "none.py", "f()")
