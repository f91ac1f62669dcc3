"""The two CRUXEval questions as debugger sessions, and the answers read from the states that a model writes.

- output: the program, the entry's call with its arguments, step_return. The model writes the return; its
  value is the answer.
- input: the program, a return of the known value (which ``return`` it was is not told), inv_step_call. The
  model writes the call; its bindings are the arguments.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from nd_jax.debugger.actions import INV_STEP_CALL, STEP_RETURN, Action
from nd_jax.debugger.source import source_lines
from nd_jax.language.parse import parse_state
from nd_jax.language.render import History, render_prompt
from nd_jax.language.session import Session, ShownState, Unrenderable
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.schema import CALL, RETURN, Event


class Unanswered(Exception):
    """Why there is no answer: (reason to count by, detail)."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Question:
    """What the model is given.

    Attributes:
      ids: the prompt.
      history: the state shown in it, needed to read the next one.
    """

    ids: list[int]
    history: History


def output_question(source: str, call: Event, tokenizer: Tokenizer) -> Question:
    """Ask what a call returns; `call` is the first event of the program's trace.

    Raises:
      Unanswered: the tokenizer cannot write the program or the arguments.
    """
    return _question(source, ShownState(CALL, call.line, 0, call.locals, None), STEP_RETURN, tokenizer)


def input_question(source: str, output: str, tokenizer: Tokenizer) -> Question:
    """Ask which call returns a value: built from the code and the output alone.

    Raises:
      Unanswered: the tokenizer cannot write the program or the value.
    """
    return _question(source, ShownState(RETURN, None, 0, None, output), INV_STEP_CALL, tokenizer)


def read_output(question: Question, ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Give the text of the value that the model returns.

    Raises:
      Unanswered: what it wrote is not one return state.
    """
    return _read(question, ids, tokenizer, RETURN).value or ""


def read_input(question: Question, ids: Sequence[int], tokenizer: Tokenizer, source: str, entry: str) -> str:
    """Give the text of the call that the model names.

    Raises:
      Unanswered: what it wrote is not one call state with the entry function's parameters.
    """
    return call_text(source, entry, _read(question, ids, tokenizer, CALL).locals or {})


def call_text(source: str, entry: str, bindings: dict[str, str]) -> str:
    """Write the call that binds a function's parameters to values: ``f(1, *(2, 3), k='x')``.

    Raises:
      Unanswered: the bindings are not those of the function's parameters.
    """
    parameters = _parameters(source, entry)
    texts = dict(bindings)

    def take(parameter: ast.arg, prefix: str = "") -> str:
        if parameter.arg not in texts:
            raise Unanswered("other parameters", f"{parameter.arg} is not bound")
        return prefix + texts.pop(parameter.arg)

    arguments = [take(parameter) for parameter in (*parameters.posonlyargs, *parameters.args)]
    if parameters.vararg:
        arguments.append(take(parameters.vararg, "*"))
    arguments += [take(parameter, f"{parameter.arg}=") for parameter in parameters.kwonlyargs]
    if parameters.kwarg:
        arguments.append(take(parameters.kwarg, "**"))
    if texts:
        raise Unanswered("other parameters", f"{entry} has no parameter {next(iter(texts))}")
    return f"{entry}({', '.join(arguments)})"


def _parameters(source: str, entry: str) -> ast.arguments:
    try:
        definitions = [
            node
            for node in ast.parse(source).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unanswered("no such function", f"the program is not Python: {error}") from None
    if not definitions:
        raise Unanswered("no such function", f"the program defines no {entry} at its top level")
    return definitions[-1].args


def _question(source: str, state: ShownState, action: str, tokenizer: Tokenizer) -> Question:
    context = tuple(source_lines(source))
    if len(context) > tokenizer.spec.lines:
        raise Unanswered(
            "too many lines", f"{len(context)} lines, the tokenizer names {tokenizer.spec.lines}"
        )
    try:
        session = Session(context, (state,), (), ended=False)
        prompt, _ = tokenizer.encode(render_prompt(session, Action(action), tokenizer.spec))
        return Question(prompt, History(context, tokenizer.spec, [state]))
    except Unrenderable as error:
        raise Unanswered(error.reason, error.detail) from None


def _read(question: Question, ids: Sequence[int], tokenizer: Tokenizer, event: str) -> ShownState:
    parsed = parse_state(tokenizer.segments(ids), question.history)
    if parsed.state is None:
        raise Unanswered("unreadable state", parsed.error or "")
    if parsed.state.event != event:
        raise Unanswered("another event", f"{parsed.state.event} where a {event} belongs")
    return parsed.state
