"""A module being written: its functions, which variables they have, and which of them nobody has read yet."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from nd_jax.programs.idioms import inputs
from nd_jax.programs.idioms.values import (
    ATOM,
    BOOL,
    BUSY,
    CHAR,
    DICT,
    INT,
    INTS,
    STR,
    TUPLE,
    WORDS,
    Dice,
    Value,
    hull,
)
from nd_jax.programs.idioms.words import LOCALS, PARAMETERS

_TOKENS = re.compile(r"f'[^']*'|'[^']*'|\.\w+|[A-Za-z_]\w*")
_HOLES = re.compile(r"\{(\w+)")
_EMPTY = {INT: "0", CHAR: "''", STR: "''", INTS: "[]", WORDS: "[]", DICT: "{}", BOOL: "False", TUPLE: "None"}
_INDENT = "    "


class Block(NamedTuple):
    """A class among a module's functions: its name and source."""

    name: str
    text: str


@dataclass
class Module:
    """What the functions of one program share.

    Attributes:
      dice: every choice is made with it.
      max_parameters: how many inputs the entry function may have.
      branches: whether its functions may hold an ``if`` statement.
      functions: finished functions and classes, each before its user.
      names: names of functions taken.
      helpers_left: how many helper functions may still be made.
      helper_rate: probability that a conversion becomes a call of a helper function.
      predicate_rate: probability that the test of a loop's item becomes one.
      make_helper: writes a helper function and gives the call of it: (caller, argument, result type) -> call.
    """

    dice: Dice
    max_parameters: int
    branches: bool
    helpers_left: int
    helper_rate: float
    predicate_rate: float
    make_helper: Callable[["Draft", Value, str], Value]
    functions: list["Draft | Block"] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


class Draft:
    """One function being written.

    Parameters come into being when something wants an input, so none is unused. A variable is ``unread`` from
    the moment it gets a value until some text mentions it; whoever finishes the function reads what is left.
    ``loops`` counts the loops around the line being written.
    """

    def __init__(self, module: Module, first: Value | None = None) -> None:
        """Start a function; a helper gets its first parameter's bounds from what it is called with."""
        self.module = module
        self.dice = module.dice
        self.name = ""
        self.is_helper = first is not None
        self.lines: list[str] = []
        self.indent = _INDENT
        self.loops = 0
        self.parameters: list[Value] = []
        self.scope: dict[str, Value] = {}
        self.unread: dict[str, None] = {}
        self.returns: list[tuple[int, Value]] = []
        self.result: Value | None = None
        if first is not None:
            self.enter(first)

    # Names and variables

    def spare(self, names: tuple[str, ...]) -> str:
        """Take a name that this function does not use, early ones more often."""
        free = [name for name in names if name not in self.scope and name not in self.module.names]
        if free:
            last = len(free) - 1
            name = free[min(self.dice.between(0, last), self.dice.between(0, last))]
        else:
            number = 2
            while f"{names[0]}{number}" in self.scope:
                number += 1
            name = f"{names[0]}{number}"
        self.scope[name] = Value(name, BUSY)
        return name

    def bind(self, name: str, value: Value) -> Value:
        """Note that a variable now holds a value that nobody has read."""
        variable = value._replace(text=name, rank=ATOM)
        self.scope[name] = variable
        self.unread[name] = None
        return variable

    def read(self, text: str) -> None:
        """Note which variables a piece of text mentions."""
        for token in _TOKENS.findall(text):
            if token.startswith("f'"):
                for name in _HOLES.findall(token):
                    self.unread.pop(name, None)
            elif token[0] not in "'.":
                self.unread.pop(token, None)

    def variables(self, kind: str) -> list[Value]:
        """List the variables of a type."""
        return [value for value in self.scope.values() if value.type == kind]

    def waiting(self) -> list[Value]:
        """List the variables that nobody has read, oldest first."""
        return [self.scope[name] for name in self.unread]

    def enter(self, bounds: Value) -> Value:
        """Make a parameter with these bounds."""
        names = PARAMETERS[bounds.type]
        if bounds.type == INTS and bounds.hi <= 2:
            names = ("pair", *names)
        parameter = self.bind(self.spare(names), bounds)
        self.parameters.append(parameter)
        return parameter

    @property
    def may_ask(self) -> bool:
        """Whether the function may have one more parameter."""
        return len(self.parameters) < (2 if self.is_helper else self.module.max_parameters)

    @property
    def may_call_helper(self) -> bool:
        """Whether a helper function may still be made and called here."""
        return self.module.helpers_left > 0 and not self.is_helper and self.loops < 2

    def want(self, kind: str) -> Value | None:
        """Find a variable of a type: an unread one, else a new parameter, else any, else None."""
        found = self.variables(kind)
        unread = [value for value in found if value.text in self.unread]
        if unread:
            return unread[-1]
        if self.may_ask and (not found or self.dice.chance(0.4)):
            return self.enter(inputs.parameter(self.dice, kind))
        return self.dice.pick(found) if found else None

    def widen(self, value: Value, lo: int, hi: int) -> bool:
        """Give an input that nothing has read yet other bounds; False where it is none."""
        if self.is_helper or value not in self.parameters or value.text not in self.unread:
            return False
        wider = value._replace(lo=lo, hi=hi)
        self.parameters[self.parameters.index(value)] = self.scope[value.text] = wider
        return True

    def number(self, lo: int, hi: int, beside: str = "") -> Value:
        """Choose an integer between bounds: mostly a literal, else another variable or a new parameter."""
        if self.dice.chance(0.25):
            fitting = [v for v in self.variables(INT) if lo <= v.lo and v.hi <= hi and v.text not in beside]
            if fitting:
                return self.dice.pick(fitting)
            if hi > lo and self.may_ask and self.dice.chance(0.6):
                return self.enter(Value("", INT, lo, hi))
        drawn = self.dice.between(lo, hi)
        return Value(str(drawn), INT, drawn, drawn)

    def arguments(self, first: Value, callee: "Draft") -> str:
        """Write the arguments of a call of a helper, some of them variables that fit."""
        texts = [first.text]
        for parameter in callee.parameters[1:]:
            fitting = [
                v
                for v in self.variables(parameter.type)
                if parameter.type == INT
                and parameter.lo <= v.lo
                and v.hi <= parameter.hi
                and v.text != first.text
            ]
            if fitting and self.dice.chance(0.4):
                texts.append(self.dice.pick(fitting).text)
            elif parameter.type == INT and not self.is_helper and self.may_ask and self.dice.chance(0.3):
                texts.append(self.enter(parameter).text)
            else:
                texts.append(inputs.literal(self.dice, parameter))
        return ", ".join(texts)

    # Lines

    def line(self, text: str) -> None:
        """Write a statement that reads everything it mentions."""
        self.read(text)
        self.lines.append(self.indent + text)

    def put(self, name: str, value: Value) -> Value:
        """Write an assignment."""
        self.line(f"{name} = {value.text}")
        return self.bind(name, value)

    def let(self, value: Value) -> Value:
        """Write an assignment to a new name that suits the value's type."""
        return self.put(self.spare(LOCALS[value.type]), value)

    def change(self, variable: Value, text: str, after: Value) -> Value:
        """Write a statement that changes a variable in place: it is unread afterwards."""
        self.line(text)
        return self.bind(variable.text, after)

    @contextmanager
    def block(self, header: str = "") -> Iterator[None]:
        """Write a header, and what follows one level deeper; without a header the caller writes it later."""
        if header:
            self.line(header)
        self.indent += _INDENT
        yield
        self.indent = self.indent[: -len(_INDENT)]

    def reserve(self) -> int:
        """Leave a line open for a header that depends on what its block turns out to read."""
        self.lines.append(self.indent)
        return len(self.lines) - 1

    def drop_repeated(self, first: int, second: int) -> None:
        """Take back a block (its header is line ``second``) that does what the one at line ``first`` does."""
        if self.lines[first + 1 : second] == self.lines[second + 1 :]:
            del self.lines[second:]

    def give(self, value: Value) -> None:
        """Write ``return``, and widen what is known of the function's result."""
        bare = value.type == TUPLE and value.text.startswith("(")
        self.line(f"return {value.text[1:-1] if bare else value.text}")
        self.result = value if self.result is None else hull(self.result, value)

    def give_early(self, value: Value) -> None:
        """Write a ``return`` of the value, or an empty one where the result turns out another type."""
        self.returns.append((len(self.lines), value))
        self.lines.append(self.indent)

    def finish(self, name: str) -> None:
        """Name the function and write what was left open."""
        self.name = name
        assert self.result is not None, "a function ends with a return"
        kind = self.result.type
        for index, value in self.returns:
            early = value if value.type == kind else Value(_EMPTY[kind], kind)
            self.lines[index] += f"return {early.text}"
            self.result = hull(self.result, early)
        self.module.names.add(name)
        self.module.functions.append(self)

    @property
    def text(self) -> str:
        """The function's source."""
        header = f"def {self.name}({', '.join(parameter.text for parameter in self.parameters)}):"
        return "\n".join([header, *self.lines]) + "\n"
