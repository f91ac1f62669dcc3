"""Synthetic programs: reproducible, small, valid everywhere, made of what was asked for, and of use."""

import ast
import dataclasses
import hashlib
import random
import re
import sys
from functools import cache
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from nd_jax.errors import UserError
from nd_jax.programs.describe import describe
from nd_jax.programs.idioms.methods import METHODS
from nd_jax.programs.program import Program
from nd_jax.programs.splits import normalised_source, split_of
from nd_jax.programs.synthetic import PLAIN, Subjects, SyntheticConfig, generate
from nd_jax.quickstart import QuickstartConfig
from nd_jax.tracing.pool import WorkerLimits, record

CONFIG = SyntheticConfig(bare_helpers=True, subjects=PLAIN)
GROWN = SyntheticConfig()
MAX_EVENTS = 200
Seen = tuple[str, int, int, dict[str, str]]  # event, line, frame, locals


@cache
def programs(seed: int, count: int) -> list[Program]:
    return list(generate(CONFIG, seed, 0, count))


@cache
def held_out() -> list[Program]:
    return [program for program in programs(0, 6_000) if split_of(program.source) == "heldout"]


def run(program: Program, arguments: list[Any] | None = None) -> str:
    """Run one of our own programs here; gives its result's text, or its exception's."""
    space: dict[str, Any] = {}
    exec(compile(program.source, "program", "exec"), space)
    left = iter(range(2_000))

    def tracer(*_: Any) -> Any:
        if next(left, None) is None:
            raise TimeoutError(program.source)
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        if arguments is None:
            return repr(eval(f"{program.entry}({program.arguments})", space))
        return repr(space[program.entry](*arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        sys.settrace(before)


def watch(program: Program) -> list[Seen]:
    """Run one of our own programs under a small tracer that gives up after too many events."""
    space: dict[str, Any] = {}
    exec(compile(program.source, "program", "exec"), space)
    seen: list[Seen] = []
    frames: list[FrameType] = []

    def tracer(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != "program":
            return None
        if frame not in frames:
            frames.append(frame)
        texts = {name: repr(value) for name, value in frame.f_locals.items() if name.isidentifier()}
        seen.append((event, frame.f_lineno, frames.index(frame), texts))
        if len(seen) > MAX_EVENTS:
            raise TimeoutError(program.source)
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        eval(f"{program.entry}({program.arguments})", space)
    except (ValueError, KeyError):
        pass  # the few that raise on purpose
    finally:
        sys.settrace(before)
    return seen


def test_a_program_depends_on_config_seed_and_its_number_alone():
    alone = next(generate(CONFIG, 3, 41, 42))
    assert alone == list(generate(CONFIG, 3, 30, 50))[11]
    assert alone.id == "synthetic/3/41"
    assert alone != next(generate(CONFIG, 4, 41, 42))
    assert list(generate(CONFIG, 3, 5, 5)) == []


def test_programs_are_the_same_on_every_machine_and_version():
    text = "\0".join(f"{p.source}\0{p.entry}({p.arguments})" for p in generate(CONFIG, 1, 0, 500))
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == "edab40e489aa6d0d"


def test_the_quickstarts_programs_are_what_they_were():
    programs = generate(QuickstartConfig().generator, 0, 0, 200)
    text = "\0".join(f"{p.source}\0{p.entry}({p.arguments})" for p in programs)
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == "c732ac079282c21a"


def test_programs_parse_by_the_oldest_grammar_and_are_written_canonically():
    for program in programs(2, 500):
        ast.parse(program.source, feature_version=(3, 9))  # nothing newer: the same on 3.11, 3.12 and 3.13
        assert program.source.endswith("\n")
        assert program.source.isascii()
        values = ast.parse(f"f({program.arguments})", mode="eval").body
        assert isinstance(values, ast.Call)
        assert ", ".join(repr(ast.literal_eval(value)) for value in values.args) == program.arguments
        assert f"def {program.entry}(" in program.source


def test_programs_end_soon_and_stay_small():
    lengths, lines = [], []
    for program in programs(5, 500):
        seen = watch(program)
        lengths.append(len(seen))
        lines.append(program.source.count("\n"))
        assert all(len(text) <= 120 for *_, texts in seen for text in texts.values()), program.source
    lengths.sort()
    lines.sort()
    assert 11 <= lengths[250] <= 17
    assert lengths[475] < 60
    assert 7 <= lines[250] <= 10
    assert lines[-1] <= CONFIG.max_lines


def test_exceptions_are_meant():
    results = [run(program) for program in programs(6, 3_000)]
    raised = [text for text in results if text.split(":")[0].endswith(("Error", "Exception", "Iteration"))]
    assert len(raised) <= 20
    assert all(text.startswith("ValueError: ") for text in raised), raised


def test_everything_is_read_and_every_function_called():
    for program in programs(7, 1_000):
        tree = ast.parse(program.source)
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        loaded = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        assert {function.name for function in functions} - loaded <= {program.entry}, program.source
        for function in functions:
            names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
            stored = {node.id for node in names if isinstance(node.ctx, ast.Store)} - {"_"}
            stored |= {argument.arg for argument in function.args.args}
            read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
            assert stored <= read, program.source
            assert not any(
                isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == ast.unparse(node.value)
                for node in ast.walk(function)
            ), program.source


def mutated(rng: random.Random, value: Any) -> Any:
    """Change a value, keeping its type."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((value + 1, value - 1, rng.randrange(20)))
        case str() if rng.random() < 0.2:
            return rng.choice((value[::-1], value.upper(), value * 2, value[1:]))
        case str():
            at = rng.randrange(len(value) + 1)
            return value[:at] + rng.choice("aeiostrnlcdmpbABC123 -") + value[at + rng.randrange(2) :]
        case list() if value:
            at = rng.randrange(len(value))
            added = [mutated(rng, value[at]) for _ in range(rng.choice((0, 1, 1, 2)))]
            return value[:at] + added + value[at + 1 :]
        case dict() if value:
            key = rng.choice(list(value))
            changed = {**value, rng.choice((key, "a", "x")): mutated(rng, value[key])}
            return changed if rng.random() < 0.7 else {k: v for k, v in changed.items() if k != key}
    return value


def test_results_depend_on_the_inputs():
    rng = random.Random(0)
    dependent = inputs = moving = 0
    for program in programs(8, 400):
        result, moves = run(program), 0
        given = ast.literal_eval(f"[{program.arguments}]")
        for position in range(len(given)):
            for _ in range(60):
                arguments = ast.literal_eval(f"[{program.arguments}]")
                for _ in range(rng.randrange(1, 4)):
                    arguments[position] = mutated(rng, arguments[position])
                if run(program, arguments) != result:
                    moves += 1
                    break
        inputs += len(given)
        moving += moves
        dependent += moves > 0
    assert dependent / 400 > 0.92
    assert moving / inputs > 0.85


def test_the_held_out_share_is_made_of_what_the_report_promises():
    shares = describe(held_out())
    assert 250 <= shares["programs"] <= 350
    assert shares["loops"] >= 0.65
    assert shares["second_function"] >= 0.30
    assert shares["branches"] >= 0.50
    assert 0.02 <= shares["exceptions"] <= 0.15


def test_the_quickstart_programs_are_short_and_still_loop_call_and_branch():
    shares = describe(generate(QuickstartConfig().generator, 0, 0, 2_000))
    assert shares["loops"] >= 0.65
    assert shares["second_function"] >= 0.27
    assert shares["branches"] >= 0.31
    assert shares["distinct"] > 0.99


def test_programs_differ():
    assert len({program.source for program in programs(0, 6_000)}) > 0.99 * 6_000
    assert len({normalised_source(program.source) for program in programs(0, 6_000)[:2_000]}) > 0.95 * 2_000


def test_the_trivial_guess_is_right_for_about_a_fifth_of_the_steps():
    right = steps = 0
    for program in held_out():
        seen = watch(program)
        latest: dict[int, dict[str, str]] = {}
        for (event, line, frame, texts), after in pairwise(seen):
            if event in ("call", "line"):
                latest[frame] = texts
            right += after == ("line", line + 1, frame, latest[frame])
            steps += 1
    assert 0.17 <= right / steps <= 0.23


@pytest.mark.parametrize(
    ("field", "figure", "least"),
    [
        ("helpers", "second_function", 0.9),
        ("loops", "loops", 0.99),
        ("branches", "branches", 0.4),
        ("exceptions", "exceptions", 0.3),
    ],
)
def test_config_shares_take_effect(field: str, figure: str, least: float):
    quiet = dataclasses.replace(CONFIG, loops=0.0, helpers=0.0, branches=0.0, exceptions=0.0)
    assert describe(generate(quiet, 0, 0, 200))[figure] == 0
    only = dataclasses.replace(quiet, **{field: 1.0})
    assert describe(generate(only, 0, 0, 200))[figure] > least


def test_predicates_are_second_functions_that_tell_of_a_loops_item():
    config = dataclasses.replace(CONFIG, loops=1.0, helpers=1.0, branches=1.0)

    def telling(predicates: float) -> int:
        programs = generate(dataclasses.replace(config, predicates=predicates), 0, 0, 300)
        tests = (
            node.test for p in programs for node in ast.walk(ast.parse(p.source)) if isinstance(node, ast.If)
        )
        return sum(isinstance(test, ast.Call) and isinstance(test.func, ast.Name) for test in tests)

    assert telling(0.0) < 20 < 60 < telling(1.0)


def test_long_drafts_are_written_anew_without_changing_what_was_planned():
    short = dataclasses.replace(CONFIG, helpers=1.0, loops=1.0, max_lines=9)
    some = list(generate(short, 0, 0, 200))
    assert max(program.source.count("\n") for program in some) == 9
    assert describe(some)["second_function"] == describe(some)["loops"] == 1
    with pytest.raises(UserError, match="max_lines=3"):
        list(generate(dataclasses.replace(short, max_lines=3), 0, 0, 1))


SUBJECTS = [subject.name for subject in dataclasses.fields(Subjects)]
MARKS = {
    "raising": ("except", "raise"),
    "classes": ("class ", "self"),
    "generators": ("yield",),
    "closures": ("    return lambda", "    def "),
    "recursion": ("return",),
    "sorting": ("key=",),
    "formatting": ("f'", "'.format(", "' % "),
    "tables": ("set(", "{"),
    "breaks": ("break", ".pop("),
}


def about(subject: str) -> SyntheticConfig:
    weights = {name: float(name == subject) for name in SUBJECTS}
    return dataclasses.replace(GROWN, subjects=Subjects(**weights))


@pytest.mark.parametrize("subject", SUBJECTS[1:])
def test_a_subjects_programs_end_soon_raise_only_what_they_mean_to_and_are_about_it(subject: str):
    made = list(generate(about(subject), 3, 0, 60))
    marks = MARKS.get(subject, ("",))
    assert sum(any(mark in program.source for mark in marks) for program in made) >= 54
    for program in made:
        ast.parse(program.source, feature_version=(3, 9))
        assert program.source.count("\n") <= GROWN.max_lines
        result = run(program)
        assert not result.split(":")[0].endswith(("Error", "Exception", "Iteration", "Timeout")), (
            f"{result}\n{program.source}{program.arguments}"
        )


def test_a_subject_that_does_not_fit_gives_way_to_plain_programs():
    short = list(
        generate(dataclasses.replace(about("classes"), max_lines=6, helpers=0.0, nested=0.0), 0, 0, 3)
    )
    assert not any("class" in program.source for program in short)
    assert max(program.source.count("\n") for program in short) <= 6


def test_recursive_programs_call_themselves():
    for program in generate(about("recursion"), 0, 0, 40):
        functions = [node for node in ast.parse(program.source).body if isinstance(node, ast.FunctionDef)]
        assert any(
            isinstance(node, ast.Name) and node.id == function.name
            for function in functions
            for node in ast.walk(function)
        ), program.source


def test_every_deterministic_method_of_the_builtin_types_appears():
    special = {"str": str, "list": list, "dict": dict, "set": set, "int": int}
    later = {"int.is_integer"}  # Python 3.12
    attributes = {"int.real", "int.imag", "int.numerator", "int.denominator"}
    there = {f"{name}.{method}" for name, kind in special.items() for method in dir(kind) if method[0] != "_"}
    assert set(METHODS) == there - later - attributes
    used: set[str] = set()
    for program in generate(GROWN, 0, 0, 2_000):
        tree = ast.parse(program.source)
        used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {method for method in METHODS if method.partition(".")[2] not in used} == set()


def test_methods_have_weights():
    config = dataclasses.replace(
        about("methods"), methods={name: 0.0 for name in METHODS if name != "str.zfill"}
    )
    assert all("zfill" in program.source for program in generate(config, 0, 0, 20))
    with pytest.raises(UserError, match=r"no method 'str\.shout'"):
        list(generate(dataclasses.replace(GROWN, methods={"str.shout": 1.0}), 0, 0, 1))
    with pytest.raises(UserError, match="weight 0"):
        list(generate(about("nothing"), 0, 0, 1))


def test_grown_programs_are_the_same_on_every_machine_and_version():
    text = "\0".join(f"{p.source}\0{p.entry}({p.arguments})" for p in generate(GROWN, 1, 0, 300))
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == "7a1a763bae118704"


def test_no_helper_is_a_single_call_unless_asked_for():
    def bare(config: SyntheticConfig) -> int:
        helper = re.compile(r"def \w+\(\w+\):\n    return \w+\.upper\(\)\n")
        return sum(helper.search(p.source) is not None for p in generate(config, 0, 0, 600))

    assert bare(CONFIG) > 0
    assert bare(dataclasses.replace(CONFIG, bare_helpers=False)) == 0


def test_all_of_a_sample_of_grown_programs_is_recorded():
    programs = list(generate(GROWN, 9, 0, 300))
    outcomes = list(record(programs, WorkerLimits(), 2, verify=True))  # twice, under two hash seeds
    assert [(o.program_id, o.reason, o.detail) for o in outcomes if o.trace is None] == []
