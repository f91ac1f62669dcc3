"""Read programs from JSON lines, in CRUXEval form or MBPP form, told apart line by line.

CRUXEval form: ``code`` and ``input``, optionally ``output`` and ``id``; the entry is ``f``.
MBPP form: ``code`` and ``test_list``, optionally ``test_setup_code`` and ``task_id``; one program a task,
from its first assertion that calls a function which the code defines at top level.
"""

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nd_jax.errors import UserError
from nd_jax.programs.program import Program
from nd_jax.programs.syntax import normalise_line_ends, parse


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that gives no program.

    Attributes:
      place: file and line, e.g. ``"mine.jsonl:12"``.
      reason: one of a few short phrases, made to be counted, e.g. ``"malformed JSON"``.
      detail: what exactly is wrong there.
    """

    place: str
    reason: str
    detail: str


class _Unusable(Exception):
    """Why a line gives no program: (reason, detail)."""


def read_programs(path: Path | str) -> Iterator[Program | Rejected]:
    """Read the file's programs in order, lazily; blank lines are skipped.

    A program without an id gets the file's stem and its line number, ``"mine_12"``.

    Raises:
      UserError: the file cannot be opened. A bad line never raises: it comes out as `Rejected`.
    """
    path = Path(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(
            f"cannot read programs from {path}: {error.strerror}; name a JSON lines file"
        ) from error
    with file:
        for number, line in enumerate(file, start=1):
            if line.strip(b"\xef\xbb\xbf \t\r\n"):
                try:
                    yield _program(line, f"{path.stem}_{number}")
                except _Unusable as error:
                    yield Rejected(f"{path.name}:{number}", *error.args)


def _program(line: bytes, default_id: str) -> Program:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _Unusable("not UTF-8", f"byte {error.start} of the line: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise _Unusable("malformed JSON", str(error)) from error
    if not isinstance(record, dict):
        raise _Unusable("not an object", f"a line holds one JSON object, not a {type(record).__name__}")
    code = _text(record, "code")
    if "input" in record:
        output = _text(record, "output") if record.get("output") is not None else None
        return Program(_identity(record, "id", default_id), code, "f", _text(record, "input"), output)
    if "test_list" in record:
        entry, arguments, output = _first_call(code, record["test_list"])
        setup = _text(record, "test_setup_code") if record.get("test_setup_code") else ""
        # Setup code uses what the code defines: the assertions run after both.
        source = f"{code.rstrip()}\n{setup.rstrip()}\n" if setup.strip() else code
        return Program(_identity(record, "task_id", default_id), source, entry, arguments, output)
    raise _Unusable("missing field", "neither input (CRUXEval form) nor test_list (MBPP form)")


def _identity(record: dict[str, Any], field: str, default: str) -> str:
    value = record.get(field)
    return default if value is None else _checked(str(value), field)


def _text(record: dict[str, Any], field: str) -> str:
    if field not in record:
        raise _Unusable("missing field", field)
    return _checked(record[field], field)


def _checked(value: Any, field: str) -> str:
    """Normalise one field's text, or say why it cannot be Python source."""
    if not isinstance(value, str):
        raise _Unusable("wrong type", f"{field} is a {type(value).__name__}, not a string")
    if "\0" in value:
        raise _Unusable("NUL character", f"{field} holds one at character {value.index(chr(0))}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _Unusable("not UTF-8", f"{field} holds a lone surrogate at character {error.start}") from error
    return normalise_line_ends(value)


def _first_call(code: str, tests: Any) -> tuple[str, str, str | None]:
    """Find entry, arguments and stated result in an MBPP task's assertions."""
    if not isinstance(tests, list):
        raise _Unusable("wrong type", f"test_list is a {type(tests).__name__}, not a list")
    module = parse(code)
    if module is None:
        raise _Unusable("syntax error", "code is not Python that this interpreter parses")
    defined = {node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for test in (_checked(test, "test_list") for test in tests):
        for assertion in (
            node for node in ast.walk(parse(test) or ast.Module([], [])) if isinstance(node, ast.Assert)
        ):
            for call in ast.walk(assertion.test):  # breadth first: of nested calls the outer one
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in defined:
                    return call.func.id, _arguments(test, call), _stated_result(test, assertion.test, call)
    raise _Unusable("no usable assertion", f"no test calls one of the functions {sorted(defined)}")


def _arguments(text: str, call: ast.Call) -> str:
    """Cut out what stands between the call's parentheses."""
    whole = ast.get_source_segment(text, call) or ""
    name = ast.get_source_segment(text, call.func) or ""
    return whole.partition(name)[2].partition("(")[2][:-1]


def _stated_result(text: str, test: ast.expr, call: ast.Call) -> str | None:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]) if left is call:
            return ast.get_source_segment(text, right)
    return None
