"""A neural debugger at work: every action is answered by the state that the model expects."""

from collections.abc import Sequence
from typing import Any

from nd_jax.debugger.actions import Action, is_forward
from nd_jax.decoding.grammar import Constraint, Grammar
from nd_jax.decoding.session import DebugSession
from nd_jax.errors import UserError
from nd_jax.language.parse import parse_state
from nd_jax.language.render import History, render_prompt
from nd_jax.language.session import Session, ShownState, Unrenderable
from nd_jax.language.symbols import STATE_END
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.model.config import ModelConfig
from nd_jax.tracing.schema import CALL, RETURN, UNWIND


class NeuralDebugger:
    """A session in which the model writes every state after the first, within the language's grammar.

    Where there is no room for another state, the session begins anew at the state it stands at, as sessions
    in training may begin anywhere. Frames are then numbered from 0 again.
    """

    def __init__(
        self,
        model: ModelConfig,
        params: dict[str, Any],
        tokenizer: Tokenizer,
        context: Sequence[str],
        start: ShownState,
        max_length: int,
        max_new: int = 64,
    ):
        """Args:
        model: the shape of the model.
        params: its parameters.
        tokenizer: its tokenizer.
        context: the program's lines.
        start: the state to begin at: the entry's call, or its end.
        max_length: tokens a session may have; best what the model was trained on (the row length).
        max_new: tokens a state may have.
        """
        self.context = tuple(context)
        self.states = [start]
        """What the session shows, since it began or began anew."""
        self.actions: list[Action] = []
        """``actions[k]`` led from ``states[k]`` to ``states[k + 1]``."""
        self._tokenizer = tokenizer
        self._grammar = Grammar(tokenizer)
        self._session = DebugSession(model, params, max_length)
        self._max_new = max_new
        self._from_root = True  # frame 0 is the entry's

    @property
    def state(self) -> ShownState:
        """Where the session stands."""
        return self.states[-1]

    def at_end(self, forward: bool) -> bool:
        """Whether no action leads on in a direction: the entry's frame closes, or opens, here."""
        ends = (RETURN, UNWIND) if forward else (CALL,)
        return self._from_root and self.state.frame == 0 and self.state.event in ends

    def do(self, action: Action) -> ShownState:
        """Go where the model says that an action leads.

        Raises:
          UserError: there is no way on, there is no room for one more state even in a session that begins
            here, or what the model wrote is no state. The session then stands where it stood.
        """
        if self.at_end(is_forward(action.name)):
            raise UserError("the program ends here" if is_forward(action.name) else "the program begins here")
        states, actions, from_root = self.states, self.actions, self._from_root
        ids = self._ask(states, actions, action)
        if len(ids) + self._max_new > self._session.max_length:
            states, actions = [self.state._replace(frame=0)], []
            from_root = from_root and self.state.frame == 0
            ids = self._ask(states, actions, action)
            if len(ids) + self._max_new > self._session.max_length:
                raise UserError(
                    f"program and state take {len(ids)} tokens, and the next state may take {self._max_new}: "
                    f"more than the {self._session.max_length} that this model was trained on"
                )
        history = History(self.context, self._tokenizer.spec, states)
        self._session.continue_from(ids)
        constraint = Constraint(self._grammar, [history])
        stop = self._tokenizer.symbol_id(STATE_END)
        written = self._session.generate([stop], self._max_new, constraint=constraint)
        read = parse_state(self._tokenizer.segments(written), history)
        if read.state is None:
            raise UserError(f"what the model wrote is no state: {read.error}")
        self.states, self.actions, self._from_root = [*states, read.state], [*actions, action], from_root
        return read.state

    def replace(self, state: ShownState) -> None:
        """Stand at another state instead, such as the real one: what follows is asked from there."""
        self.states[-1] = state

    def undo(self) -> None:
        """Go back to before the last action.

        Raises:
          UserError: the session began, or began anew, here.
        """
        if not self.actions:
            raise UserError("the session began here")
        del self.states[-1], self.actions[-1]

    def _ask(self, states: Sequence[ShownState], actions: Sequence[Action], action: Action) -> list[int]:
        session = Session(self.context, tuple(states), tuple(actions), ended=False)
        try:
            return self._tokenizer.encode(render_prompt(session, action, self._tokenizer.spec))[0]
        except Unrenderable as error:
            raise UserError(f"the model's language cannot write this ({error})") from None
