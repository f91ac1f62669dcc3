"""Seeded synthetic programs: the embedded default of what is traced.

Each program is one entry function over integers, strings, lists, dicts and booleans, often with a helper
function, composed of the idioms in `nd_jax.programs.idioms`: it terminates, stays small, raises only where it
means to, and reads everything it computes. Half of them by default are about one subject more: methods,
classes, generators, closures, recursion, ...
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import NamedTuple

from nd_jax.errors import UserError
from nd_jax.programs.idioms import (
    breaks,
    classes,
    exceptions,
    formatting,
    helpers,
    inputs,
    lazy,
    loops,
    patterns,
    recursion,
    sorting,
    statements,
    tables,
)
from nd_jax.programs.idioms.conversions import convert, expression, target_of
from nd_jax.programs.idioms.draft import Draft, Module
from nd_jax.programs.idioms.methods import METHODS, MethodChoice, call_methods
from nd_jax.programs.idioms.pairs import combine
from nd_jax.programs.idioms.values import (
    BOOL,
    DICT,
    INT,
    INTS,
    LOOSE,
    STR,
    TUPLE,
    WORDS,
    Dice,
    Value,
    Weighted,
)
from nd_jax.programs.idioms.words import VERBS
from nd_jax.programs.program import Program


@dataclass(frozen=True)
class Subjects:
    """What programs are about, by weight."""

    plain: float = 10.0
    """Loops, branches, expressions and helper functions alone, as `SyntheticConfig`'s shares say."""
    methods: float = 4.0
    """Two to four calls of methods of str, list, dict, set and int, drawn from all there are."""
    raising: float = 0.8
    """``try`` with several clauses, exception classes, errors counted in a loop."""
    classes: float = 0.8
    """A class with state and methods; one that inherits."""
    generators: float = 0.8
    """A generator function, and what consumes it."""
    closures: float = 0.8
    """A function that returns a function; ``nonlocal``; ``lambda``."""
    recursion: float = 0.8
    """A function that calls itself on something smaller."""
    sorting: float = 0.8
    """``sorted``, ``sort``, ``min`` and ``max`` with keys."""
    formatting: float = 0.8
    """f-strings with specifications, ``%``, ``format``."""
    tables: float = 0.8
    """Dicts and sets: grouping, inverting, merging, what comes twice."""
    breaks: float = 0.8
    """``while`` with ``break``, ``for`` with ``else``."""


PLAIN = Subjects(**{subject.name: float(subject.name == "plain") for subject in fields(Subjects)})
"""Nothing but plain programs."""


@dataclass(frozen=True)
class SyntheticConfig:
    """What synthetic programs are like: shares are probabilities, fractions of 1."""

    loops: float = 0.74
    """Entry function has a ``for`` or ``while`` loop (helpers may add some)."""
    whiles: float = 0.2
    """Of those loops: ``while``."""
    searches: float = 0.1
    """Of those loops, where branches are allowed: return from inside, as soon as something fits."""
    bests: float = 0.08
    """Of those loops, where branches are allowed: keep the best so far."""
    nested: float = 0.05
    """Of those loops: a loop in a loop."""
    helpers: float = 0.36
    """Has a second function, which is called."""
    predicates: float = 0.25
    """Of the tests of a loop's items, while a second function is still to be written: a call of it."""
    branches: float = 0.9
    """May have ``if`` statements (most that may do; conditional expressions stand anywhere)."""
    guards: float = 0.09
    """Of those: begins with an early return for some inputs."""
    exceptions: float = 0.1
    """Raises and catches, for some inputs."""
    uncaught: float = 0.1
    """Of the functions that raise: nobody catches."""
    steps: float = 0.35
    """One more statement or branch after a loop."""
    either: float = 0.1
    """Of those that may branch: ends with two returns, one under a condition."""
    plain_names: float = 0.45
    """The entry function is called ``f``."""
    max_parameters: int = 3
    """Most inputs of an entry function."""
    max_lines: int = 16
    """Longest program; a longer draft is thrown away for another one."""
    bare_helpers: bool = False
    """A second function may be a single call or operation (``return c.upper()``), as benchmarks have."""
    subjects: Subjects = field(default_factory=Subjects)
    """What programs are about."""
    methods: Mapping[str, float] = field(default_factory=dict)
    """Weights of methods that are to differ from 1, e.g. ``str.center 0 list.sort 3``."""


_SOURCES = Weighted((STR, 4.5), (INTS, 3), (INT, 1.3), (WORDS, 0.9), (DICT, 1))
_FIRST = Weighted((STR, 4.5), (INTS, 2.5), (INT, 2), (WORDS, 0.8), (DICT, 1.2), (BOOL, 0.2))


DRAFTS = 1000
"""Most drafts of a program: one is thrown away if it is too long, or found no use for its second function."""
_SUBJECT_DRAFTS = 200
"""Most drafts about a subject: one that does not fit into ``max_lines`` (a class, say) gives way to none."""


def generate(config: SyntheticConfig, seed: int, start: int, stop: int) -> Iterator[Program]:
    """Yield programs ``start`` to ``stop - 1``; each depends on config, seed and its number alone.

    Raises:
      UserError: nothing fits into ``max_lines``.
    """
    choice = _method_choice(tuple(config.methods.items()))
    subjects = Weighted(*((s.name, getattr(config.subjects, s.name)) for s in fields(Subjects)))
    if not subjects.bounds[-1] > 0:
        raise UserError("synthetic programs: every subject has weight 0; give one a positive weight")
    for index in range(start, stop):
        plan = _Plan.draw(config, Dice(f"{seed}/{index}"))
        subject = Dice(f"{seed}/{index}/subject").draw(subjects)
        for draft in range(DRAFTS):
            if draft == _SUBJECT_DRAFTS:
                subject = "plain"
            writer = _Writer(config, plan, Dice(f"{seed}/{index}/{draft}"), subject, choice)
            program = writer.program(f"synthetic/{seed}/{index}")
            if (
                writer.module.helpers_left == 0
                and program.source.count("\n") <= config.max_lines
                and (config.bare_helpers or not writer.has_bare_helper())
            ):
                yield program
                break
        else:
            raise UserError(
                f"synthetic programs: in {DRAFTS} drafts none of this kind fits into "
                f"max_lines={config.max_lines}; raise max_lines"
            )


@lru_cache(maxsize=4)
def _method_choice(weights: tuple[tuple[str, float], ...]) -> MethodChoice:
    unknown = [name for name, _ in weights if name not in METHODS]
    if unknown:
        raise UserError(f"synthetic programs: no method {unknown[0]!r}; there are {', '.join(METHODS)}")
    given = dict(weights)
    return MethodChoice(tuple(given.get(name, 1.0) for name in METHODS))


_SUBJECTS: dict[str, Callable[[Draft], None]] = {
    "raising": exceptions.handled,
    "classes": classes.with_class,
    "generators": lazy.generator,
    "closures": lazy.closure,
    "recursion": recursion.recursive,
    "sorting": sorting.ordered,
    "formatting": formatting.formatted,
    "tables": tables.table_work,
    "breaks": breaks.left_early,
}
_OPERATIONS = (ast.Call, ast.BinOp, ast.Compare, ast.Subscript, ast.IfExp, ast.BoolOp, ast.JoinedStr)


class _Plan(NamedTuple):
    """What a program is to have, however often it is written anew: so long ones do not change the shares."""

    loop: bool
    helper: bool
    branches: bool

    @classmethod
    def draw(cls, config: SyntheticConfig, dice: Dice) -> "_Plan":
        return cls(*(dice.chance(share) for share in (config.loops, config.helpers, config.branches)))


class _Writer:
    """Writes one program."""

    def __init__(
        self, config: SyntheticConfig, plan: _Plan, dice: Dice, subject: str, methods: MethodChoice
    ) -> None:
        self.config, self.plan, self.dice, self.subject, self.methods = config, plan, dice, subject, methods
        helper = plan.helper and subject == "plain"
        self.module = Module(
            dice, config.max_parameters, plan.branches, int(helper), 0.5, config.predicates, helpers.make
        )

    def program(self, name: str) -> Program:
        """Write the program, and choose inputs for it."""
        d = Draft(self.module)
        self.body(d)
        assert d.result is not None
        verbs = [
            verb for verb in VERBS[d.result.type] if verb not in d.scope and verb not in self.module.names
        ]
        d.finish("f" if self.dice.chance(self.config.plain_names) else self.dice.pick(verbs))
        texts = [function.text for function in self.module.functions]
        has_class = any(not isinstance(function, Draft) for function in self.module.functions)
        if len(texts) > 1 and not has_class and self.dice.chance(0.15):
            texts.reverse()
        arguments = ", ".join(inputs.literal(self.dice, parameter) for parameter in d.parameters)
        return Program(name, "\n".join(texts), d.name, arguments)

    def has_bare_helper(self) -> bool:
        """Tell whether a function beside the entry does no more than one thing."""
        return any(
            isinstance(helper, Draft) and len(helper.lines) == 1 and _is_bare(helper.lines[0])
            for helper in self.module.functions[:-1]
        )

    def about_subject(self, d: Draft) -> None:
        """Write the entry function of a program that is not plain."""
        if self.subject == "methods":
            call_methods(d, self.methods, self.dice.pick((2, 2, 3, 4)))
        else:
            _SUBJECTS[self.subject](d)
        if self.dice.chance(self.config.steps):
            statements.step(d, d.waiting()[-1])
        self.end(d)

    def body(self, d: Draft) -> None:
        """Write the entry function: first an input, then perhaps a loop, then what is left to do."""
        if self.subject != "plain":
            self.about_subject(d)
            return
        dice, config, branches = self.dice, self.config, self.plan.branches
        source = d.want(dice.draw(_SOURCES if self.plan.loop else _FIRST))
        assert source is not None
        if branches and dice.chance(config.guards):
            statements.guard(d, source)
        if dice.chance(config.exceptions):
            if branches and dice.chance(0.5):
                exceptions.checked(d, config.uncaught)
            else:
                exceptions.attempt(d)
        if self.plan.loop:
            if self.loop(d, self.prepared(d, source)):
                return
            if dice.chance(config.steps):
                statements.step(d, d.waiting()[-1])
        else:
            value = self.prepared(d, source)
            for _ in range(dice.pick((2, 2, 3))):
                value = statements.step(d, value)
        self.end(d)

    def prepared(self, d: Draft, v: Value) -> Value:
        """Rework an input before the main part, now and then."""
        if v.separator and self.dice.chance(0.7):
            words = d.let(expression(d, v, WORDS))
            if words.flavour == "digits" and self.dice.chance(0.7):
                return d.put(words.text, Value(f"list(map(int, {words.text}))", INTS, 1, 3, 0, 9))
            return words
        if self.dice.chance(0.2) and v.type in (STR, INTS, WORDS):
            made = expression(d, v, v.type)
            if made.type == v.type and made.hi >= 2:
                return d.put(v.text, made) if self.dice.chance(0.5) else d.let(made)
        return v

    def loop(self, d: Draft, v: Value) -> bool:
        """Write the main loop; True if it ended the function."""
        config, branches = self.config, self.plan.branches
        roll = self.dice.roll()
        if roll < config.searches and branches:
            patterns.search(d, v)
            return True
        roll -= config.searches
        if roll < config.bests and branches and v.type in (INTS, WORDS) and v.lo >= 1:
            patterns.best(d, v)
        elif roll < config.bests + config.nested and v.type != DICT and v.hi <= 6:
            loops.nested(d, v)
        elif roll < config.bests + config.nested + config.whiles and v.type != DICT:
            loops.while_left(d, v)
        else:
            loops.for_each(d, v)
        return False

    def end(self, d: Draft) -> None:
        """Return something made of everything that is still unread."""
        waiting = d.waiting()
        value = waiting[-1]
        for other in waiting[-2::-1]:
            value = combine(d, d.let(value) if value.rank == LOOSE else value, other)
        if value.rank == LOOSE:
            value = d.let(value)
        if self.module.helpers_left:
            d.give(helpers.make(d, value, target_of(d, value)) if value.type != TUPLE else value)
        elif (
            self.plan.branches
            and self.dice.chance(self.config.either)
            and value.text in d.scope
            and value.type != TUPLE
        ):
            statements.give_either(d, value)
        elif self.dice.chance(0.45) and value.type != TUPLE:
            d.give(convert(d, value, target_of(d, value)))
        else:
            d.give(value)


def _is_bare(line: str) -> bool:
    """Tell whether a statement is a return of at most one call or operation."""
    statement = ast.parse(line.strip()).body[0]
    operations = sum(isinstance(node, _OPERATIONS) for node in ast.walk(statement))
    return isinstance(statement, ast.Return) and operations <= 1
