"""Step a program with the model beside the real execution, for a person to compare."""

from nd_jax.debugger.actions import STEP_INTO, Action
from nd_jax.debugger.policy import full_walk
from nd_jax.debugger.tree import StateTree
from nd_jax.decoding.engine import Decoder
from nd_jax.errors import UserError
from nd_jax.language.parse import ParsedState, parse_state
from nd_jax.language.render import History, render_prompt
from nd_jax.language.session import Session, ShownState, Unrenderable, show
from nd_jax.language.symbols import STATE_END
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.schema import Trace


def side_by_side(
    trace: Trace, tokenizer: Tokenizer, decoder: Decoder, row_length: int, max_new: int = 64
) -> str:
    """Walk through a trace by step_into; at each state the model, given the real ones, says the next.

    Args:
      trace: the real execution.
      tokenizer: the model's.
      decoder: the model.
      row_length: tokens the model was trained on at once; the walk ends before a session gets longer.
      max_new: tokens a predicted state may have.

    Returns:
      The program with its lines numbered, then a line for each step: the real state, whether the model's is
      the same, and what it said where it is not.

    Raises:
      UserError: the tokenizer cannot write the program.
    """
    tree = StateTree(trace)
    action = Action(STEP_INTO)
    try:
        session = show(tree, full_walk(tree, STEP_INTO), tokenizer.spec)
        prompts = [
            tokenizer.encode(render_prompt(_first(session, k), action, tokenizer.spec))[0]
            for k in range(1, len(session.states))
        ]
    except Unrenderable as error:
        raise UserError(f"{trace.id}: this tokenizer cannot write it ({error})") from error
    prompts = [prompt for prompt in prompts if len(prompt) + max_new <= row_length]
    written = decoder.greedy(prompts, [tokenizer.symbol_id(STATE_END)], max_new)

    lines = [f"{number:3}  {line}" for number, line in enumerate(session.context, 1)]
    lines += ["", f"{trace.entry}({trace.arguments})", f"     start  {_describe(session.states[0])}"]
    history = History(session.context, tokenizer.spec)
    right = 0
    for k, ids in enumerate(written, 1):
        history.see(session.states[k - 1])
        real = session.states[k]
        said = parse_state(tokenizer.segments(ids), history)
        same = said.state == real
        right += same
        lines.append(f"  {'ok   ' if same else 'WRONG'} step   {_describe(real)}")
        if not same:
            lines.append(f"        model  {_say(said)}")
    lines.append(f"{right} of {len(written)} next states right")
    return "\n".join(lines)


def _first(session: Session, count: int) -> Session:
    """The session up to its first states."""
    return session._replace(states=session.states[:count], actions=session.actions[: count - 1])


def fields(state: ShownState) -> list[str]:
    """What a state binds, and its value, for a person to read."""
    shown = [f"{name} = {text}" for name, text in (state.locals or {}).items()]
    return shown if state.value is None else [*shown, state.value]


def _describe(state: ShownState) -> str:
    shown = ", ".join(fields(state))
    return f"{state.event:9} line {state.line:<3} frame {state.frame}  {shown}".rstrip()


def _say(said: ParsedState) -> str:
    return _describe(said.state) if said.state is not None else f"no state: {said.error}"
