"""What a compiled program does, counted in its text (XLA's HLO): collectives, and the work of its matmuls.

The text is of one device's part of the program. Loops count as often as the compiler says that they run.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
"""The operations that move data between devices."""

SIZES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4,
         "s64": 8, "u64": 8, "f64": 8}  # fmt: skip
"""Bytes of one element by HLO's name of the type; other types count nothing."""

INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
ARRAY = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
CALLED = re.compile(r"(?:calls|to_apply|body|condition)=%?([\w.\-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


@dataclass
class Traffic:
    """One kind of collective over a whole program."""

    count: int = 0
    """How often it runs."""

    bytes: int = 0
    """What it moves, per device: the larger of its operand and its result, each time. (How much of that
    crosses a link is up to the algorithm: a ring moves (n - 1) / n of it, an all-reduce twice that.)"""


@dataclass
class Counts:
    """What one run of a program does on one device."""

    collectives: dict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    """By the names in `COLLECTIVES`."""

    matmul_flops: int = 0
    """Floating-point operations of its dots, 2 per multiply-add, what is recomputed included. TPU's compiler
    writes them as convolutions, which are not counted."""

    unknown_loops: int = 0
    """Loops whose number of rounds the compiler does not know: counted as one round."""


@dataclass
class _Instruction:
    name: str
    type: str
    operation: str
    rest: str  # operands, then attributes


def count(text: str) -> Counts:
    """Count what a compiled program does, from `compiled.as_text()`."""
    computations, entry = _parse(text)
    counts = Counts()
    for name, times in _runs(computations, entry, counts):
        types = {instruction.name: instruction.type for instruction in computations[name]}
        for instruction in computations[name]:
            operation = instruction.operation.removesuffix("-start")
            if operation in COLLECTIVES:
                counts.collectives[operation].count += times
                counts.collectives[operation].bytes += times * _moved(instruction, types)
            elif operation == "dot":
                counts.matmul_flops += times * _dot_flops(instruction, types)
    counts.collectives = dict(sorted(counts.collectives.items()))
    return counts


def _parse(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    computations: dict[str, list[_Instruction]] = {}
    entry, current = "", []
    for line in text.splitlines():
        if match := COMPUTATION.match(line):
            current = computations[match[2]] = []
            entry = match[2] if match[1] else entry
        elif match := INSTRUCTION.match(line):
            current.append(_Instruction(*match.groups()))
    return computations, entry


def _runs(
    computations: dict[str, list[_Instruction]], entry: str, counts: Counts
) -> Iterator[tuple[str, int]]:
    """Every computation that is reached, with how often it runs, once for each place that calls it."""
    pending = [(entry, 1)]
    while pending:
        name, times = pending.pop()
        yield name, times
        for instruction in computations[name]:
            rounds = 1
            if instruction.operation == "while":
                known = TRIPS.search(instruction.rest)
                rounds = int(known[1]) if known else 1
                counts.unknown_loops += not known
            called = CALLED.findall(instruction.rest)
            for branches in BRANCHES.findall(instruction.rest):
                called += re.findall(r"[\w.\-]+", branches)
            pending += [(callee, times * rounds) for callee in called if callee in computations]


def _operands(instruction: _Instruction) -> list[str]:
    return re.findall(r"%([\w.\-]+)", instruction.rest.split(")", 1)[0])


def _dimensions(shape: str) -> list[int]:
    return [int(size) for size in shape.split(",") if size]


def _bytes(type: str) -> int:
    return sum(SIZES.get(kind, 0) * math.prod(_dimensions(shape)) for kind, shape in ARRAY.findall(type))


def _moved(instruction: _Instruction, types: dict[str, str]) -> int:
    operands = sum(_bytes(types.get(name, "")) for name in _operands(instruction))
    result = _bytes(instruction.type)
    if instruction.operation in ("all-gather-start", "collective-permute-start"):
        result -= operands  # its type names the operands too
    return max(operands, result)


def _dot_flops(instruction: _Instruction, types: dict[str, str]) -> int:
    (_, result), (_, left) = (
        ARRAY.findall(text)[0] for text in (instruction.type, types[_operands(instruction)[0]])
    )
    contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.rest)
    over = [_dimensions(left)[dim] for dim in _dimensions(contracted[1] if contracted else "")]
    return 2 * math.prod(_dimensions(result)) * math.prod(over)
