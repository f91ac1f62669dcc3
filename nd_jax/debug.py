"""`nd debug`: step through a program with the model, in pdb's words, beside the real execution."""

import ast
import cmd
from collections.abc import Callable
from pathlib import Path

from nd_jax.debugger.actions import (
    BREAKPOINT,
    CONTINUE,
    INV_BREAKPOINT,
    INV_CONTINUE,
    INV_STEP_CALL,
    INV_STEP_INTO,
    INV_STEP_OVER,
    STEP_INTO,
    STEP_OVER,
    STEP_RETURN,
    Action,
    target,
)
from nd_jax.debugger.policy import Trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.decoding.neural_debugger import NeuralDebugger
from nd_jax.errors import UserError
from nd_jax.evaluation.verbs import Model, load
from nd_jax.evaluation.walk import fields
from nd_jax.language.session import ShownState, Unrenderable, show
from nd_jax.language.symbols import TokenizerSpec
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import WorkerLimits, record_one
from nd_jax.tracing.schema import Trace


def debug(
    file: Path, call: str, checkpoint: Path, backwards: bool = False, limits: WorkerLimits = WorkerLimits()
) -> None:
    """Read commands and answer them; the arguments are those of `nd debug`.

    Raises:
      UserError: the call is none of a function of the file, or could not be recorded; no such model.
    """
    trace = record_one(read_program(file, call), limits)
    Shell(load(checkpoint), trace, backwards).cmdloop()


def read_program(file: Path, call: str) -> Program:
    """Take a call such as ``f([1, 2], key='a')`` apart, and read the program that it runs.

    Raises:
      UserError: the file cannot be read, or the call is none.
    """
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    try:
        node = ast.parse(call.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{call!r} is not a call: {error}") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise UserError(f"{call!r} is not a call of a function of {file}, such as 'f(3)'")
    arguments = call.strip()[len(node.func.id) :].strip()[1:-1]
    return Program(file.name, source, node.func.id, arguments)


class RealExecution:
    """The recorded run of the program, at the place where the same actions have led."""

    def __init__(self, trace: Trace, spec: TokenizerSpec, backwards: bool):
        self._tree = StateTree(trace)
        self._spec = spec
        self._start: int | None = self._tree.last if backwards else 0
        self._steps: list[tuple[Action, int | None]] = []

    @property
    def lines(self) -> tuple[str, ...]:
        """The program's lines."""
        return self._tree.lines

    @property
    def place(self) -> int | None:
        """The state's index; None beyond the program's end or beginning."""
        return self._steps[-1][1] if self._steps else self._start

    @property
    def state(self) -> ShownState | None:
        """Where it stands, as a session that began here shows it.

        Raises:
          UserError: the model's language cannot write the program.
        """
        if self._start is None or self.place is None:
            return None
        steps = tuple((action, place) for action, place in self._steps if place is not None)
        try:
            return show(self._tree, Trajectory(self._start, steps, ended=False), self._spec).states[-1]
        except Unrenderable as error:
            raise UserError(f"the model's language cannot write this program ({error})") from None

    def do(self, action: Action) -> None:
        """Follow an action."""
        place = self.place
        self._steps.append((action, None if place is None else target(self._tree, place, action)))

    def undo(self) -> None:
        """Go back to before the last action."""
        if self._steps:
            self._steps.pop()

    def begin_anew(self) -> None:
        """Number frames from here."""
        self._start, self._steps = self.place, []


def _alias(action: Callable[["Shell"], Action], help: str) -> Callable[["Shell", str], None]:
    def do(shell: "Shell", line: str) -> None:
        shell.act(action(shell))

    do.__doc__ = help
    return do


class Shell(cmd.Cmd):
    """Commands of pdb, answered by the model; those that go backwards have gdb's names."""

    prompt = "(nd) "

    def __init__(self, model: Model, trace: Trace, backwards: bool = False):
        """Args:
        model: whose states are shown.
        trace: the real execution, shown wherever it differs.
        backwards: begin at the end of the program instead of at its call.
        """
        super().__init__()
        self._real = RealExecution(trace, model.tokenizer.spec, backwards)
        start = self._real.state
        assert start is not None, "every trace has a first state"
        self._debugger = NeuralDebugger(
            model.experiment.model,
            model.params,
            model.tokenizer,
            self._real.lines,
            start,
            model.experiment.data.row_length,
        )
        self._breakpoints: set[int] = set()
        self._right = self._asked = 0
        where = "end" if backwards else "call"
        self.intro = (
            f"{trace.entry}({trace.arguments}), at its {where}. States are what the model expects after its "
            "own ones before;\nwhere the real execution differs, that is shown too; `help` lists commands.\n"
            f"{self._describe(start)}"
        )

    # What the commands do.

    def act(self, action: Action) -> None:
        """Ask the model where an action leads, and compare."""
        before = len(self._debugger.states)
        said = self._debugger.do(action)
        if len(self._debugger.states) <= before:
            self._say("(no room for more: the session begins anew at the state before)")
            self._real.begin_anew()
        self._real.do(action)
        real = self._real.state
        self._asked += 1
        self._right += real == said
        self._say(self._describe(said))
        if real is None:
            self._say("  really: nothing more, the program is at its end")
        elif real != said:
            self._say(f"  really: {self._describe(real)}")

    def onecmd(self, line: str) -> bool:
        """Run a command; a mistake is told about, and the session goes on."""
        try:
            return bool(super().onecmd(line))
        except UserError as error:
            self._say(str(error))
            return False

    do_s = do_step = _alias(lambda shell: Action(STEP_INTO), "s(tep): the next state, in whatever frame.")
    do_n = do_next = _alias(lambda shell: Action(STEP_OVER), "n(ext): the next state of this frame.")
    do_r = do_return = _alias(lambda shell: Action(STEP_RETURN), "r(eturn): the end of this frame.")
    do_c = do_cont = do_continue = _alias(
        lambda shell: shell._until(BREAKPOINT, CONTINUE), "c(ontinue): the next breakpoint, or the end."
    )
    do_rs = _alias(lambda shell: Action(INV_STEP_INTO), "rs: the state before, in whatever frame.")
    do_rn = _alias(lambda shell: Action(INV_STEP_OVER), "rn: the state before of this frame.")
    do_rf = _alias(lambda shell: Action(INV_STEP_CALL), "rf: the call of this frame.")
    do_rc = _alias(
        lambda shell: shell._until(INV_BREAKPOINT, INV_CONTINUE),
        "rc: the breakpoint before, or the beginning.",
    )

    def _until(self, with_lines: str, without: str) -> Action:
        lines = tuple(sorted(self._breakpoints))
        return Action(with_lines, lines) if lines else Action(without)

    def do_break(self, line: str) -> None:
        """b(reak) [LINE]: stop there on c and rc; without a line, list the breakpoints."""
        if line:
            self._breakpoints.add(self._line(line))
        self._say(f"breakpoints: {', '.join(map(str, sorted(self._breakpoints))) or 'none'}")

    do_b = do_break

    def do_clear(self, line: str) -> None:
        """cl(ear) [LINE]: no breakpoint there; without a line, none at all."""
        self._breakpoints -= {self._line(line)} if line else set(self._breakpoints)
        self.do_break("")

    do_cl = do_clear

    def do_list(self, line: str) -> None:
        """l(ist): the program, with -> where the session stands and B at breakpoints."""
        here = self._debugger.state.line
        for number, text in enumerate(self._debugger.context, 1):
            mark = "->" if number == here else "B " if number in self._breakpoints else "  "
            self._say(f"{number:4} {mark} {text}")

    do_l = do_list

    def do_args(self, line: str) -> None:
        """a(rgs): what this state binds, or its value."""
        self._say(self._describe(self._debugger.state))

    do_a = do_where = do_w = do_args

    def do_print(self, line: str) -> None:
        """p(rint) NAME: what a name is bound to."""
        bound = self._debugger.state.locals or {}
        self._say(bound.get(line, f"{line!r} is not bound here: {', '.join(bound) or 'nothing is'}"))

    do_p = do_print

    def do_correct(self, line: str) -> None:
        """correct: go on from the real state instead of the model's."""
        real = self._real.state
        if real is None:
            raise UserError("the real program is at its end already: undo")
        self._debugger.replace(real)
        self._say(self._describe(self._debugger.state))

    def do_undo(self, line: str) -> None:
        """undo: back to before the last command that moved."""
        self._debugger.undo()
        self._real.undo()
        self._say(self._describe(self._debugger.state))

    def do_quit(self, line: str) -> bool:
        """q(uit)."""
        if self._asked:
            self._say(f"{self._right} of {self._asked} states were the real ones")
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, line: str) -> bool:
        """End of input: quit."""
        return self.do_quit(line)

    def default(self, line: str) -> None:
        """Answer what is no command."""
        self._say(f"no command {line.split()[0]!r}; `help` lists them")

    def _line(self, text: str) -> int:
        if not (text.isdecimal() and 1 <= int(text) <= len(self._debugger.context)):
            raise UserError(f"{text!r} is no line of the program: 1 to {len(self._debugger.context)}")
        return int(text)

    def _describe(self, state: ShownState) -> str:
        source = self._debugger.context[state.line - 1].strip() if state.line else ""
        where = f"line {state.line}" if state.line else "no line"
        return f"{state.event}, {where}, frame {state.frame}: {source}   [{'; '.join(fields(state))}]"

    def _say(self, text: str) -> None:
        print(text, file=self.stdout)
