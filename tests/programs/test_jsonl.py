"""Programs from JSON lines: both forms, and every way a line can be wrong."""

import json
import os
from pathlib import Path

import pytest

from nd_jax.errors import UserError
from nd_jax.programs.jsonl import Rejected, read_programs
from nd_jax.programs.program import Program

DATA = Path(os.environ.get("ND_DATA", Path(__file__).parents[2] / "../shared/data"))


def read(tmp_path: Path, *records: object) -> list[Program | Rejected]:
    """Read records given as JSON objects, or as raw bytes for a line that must not be valid."""
    lines = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in records]
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"\n".join(lines))
    return list(read_programs(path))


def mbpp(test: str, code: str = "def g(x, y=0):\n    return x", **fields: str) -> dict[str, object]:
    return {"code": code, "test_list": [test], **fields}


def test_cruxeval_form_with_and_without_optional_fields(tmp_path: Path):
    full, bare = read(
        tmp_path,
        {"code": "def f(x):\n    return x", "input": "1, 2", "output": "3", "id": "sample_9"},
        {"code": "def f():\n    pass", "input": ""},
    )
    assert full == Program("sample_9", "def f(x):\n    return x", "f", "1, 2", "3")
    assert bare == Program("mine_2", "def f():\n    pass", "f", "", None)


def test_line_ends_byte_order_marks_and_blank_lines(tmp_path: Path):
    first, second = read(
        tmp_path,
        b"\xef\xbb\xbf"
        + json.dumps({"code": "\ufeffdef f(x):\r\n  return x\r", "input": "1"}).encode()
        + b"\r",
        b"  \r",
        mbpp("assert g(\r\n1) == 2", code="def g(x):\r\n\treturn x"),
    )
    assert isinstance(first, Program)
    assert first.source == "def f(x):\n  return x\n"
    assert isinstance(second, Program)
    assert (second.id, second.source, second.arguments) == ("mine_3", "def g(x):\n\treturn x", "\n1")


@pytest.mark.parametrize(
    ("test", "arguments", "output"),
    [
        ("assert g(1, y=(2)) == [3]", "1, y=(2)", "[3]"),
        ("assert set(g([1], 2)) == {1}", "[1], 2", None),
        ("assert not g('a)')", "'a)'", None),
        ("assert math.isclose(g(1.5), 2, rel_tol=1)", "1.5", None),
        ("import math\nassert g(math.pi) == 3, 'message'", "math.pi", "3"),
        ("assert g(h(1)) == g(2)", "h(1)", "g(2)"),
        ("assert 4 == g (1)", "1", None),
        ("assert g(1) < 2", "1", None),
        ("assert g( 'é', 'ß' ) == 'ü'", " 'é', 'ß' ", "'ü'"),
        ("assert 'é' and g('ä') == 1", "'ä'", None),
        ("assert (g)(1, # one\n 2\n) == (1,\n 2)", "1, # one\n 2\n", "(1,\n 2)"),
        ("assert len('g(0)') and g() == 1", "", None),
    ],
)
def test_mbpp_call_forms(tmp_path: Path, test: str, arguments: str, output: str | None):
    (program,) = read(tmp_path, mbpp(test, task_id="mbpp/1"))
    assert program == Program("mbpp/1", "def g(x, y=0):\n    return x", "g", arguments, output)


def test_mbpp_takes_the_first_assertion_that_calls_what_the_code_defines(tmp_path: Path):
    tests = ["assert True", "assert other(1) == 1", "x = g(0)", "assert g(2) == 2", "assert g(3) == 3"]
    (program,) = read(tmp_path, {"code": "def g(x):\n    return x", "test_list": tests, "task_id": 7})
    assert program == Program("7", "def g(x):\n    return x", "g", "2", "2")


def test_mbpp_setup_code_runs_after_the_code(tmp_path: Path):
    record = mbpp("assert g(K) == 1", test_setup_code="K = 1\r\n\r\n")
    (program,) = read(tmp_path, record)
    assert isinstance(program, Program)
    assert program.source == "def g(x, y=0):\n    return x\nK = 1\n"


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        (b'{"code": "x"', "malformed JSON", "delimiter"),
        (b"[" * 100_000, "malformed JSON", "recursion"),
        (b"[1]", "not an object", "list"),
        (b'{"code": "\xff"}', "not UTF-8", "byte 10"),
        (b'{"code": "\\ud800", "input": ""}', "not UTF-8", "surrogate"),
        (b'{"code": "x\\u0000", "input": ""}', "NUL character", "code"),
        (b'{"code": "x", "input": 3}', "wrong type", "input is a int"),
        (b'{"input": "3"}', "missing field", "code"),
        (b'{"code": "x"}', "missing field", "test_list"),
        (b'{"code": "x", "test_list": "assert f()"}', "wrong type", "test_list"),
        (b'{"code": "def (", "test_list": []}', "syntax error", "code"),
        (b'{"code": "def g(): 1", "test_list": ["assert h() =="]}', "no usable assertion", "g"),
        (json.dumps({"code": "x = " + "(" * 9999, "test_list": []}).encode(), "syntax error", "code"),
    ],
)
def test_bad_lines_are_named_and_cost_only_themselves(tmp_path: Path, line: bytes, reason: str, detail: str):
    good, bad, last = read(tmp_path, mbpp("assert g(1)"), line, mbpp("assert g(2)"))
    assert isinstance(good, Program)
    assert isinstance(last, Program)
    assert isinstance(bad, Rejected)
    assert (bad.place, bad.reason) == ("mine.jsonl:2", reason)
    assert detail in bad.detail


def test_a_missing_file_is_the_users_mistake(tmp_path: Path):
    with pytest.raises(UserError, match=r"no\.jsonl"):
        list(read_programs(tmp_path / "no.jsonl"))
    with pytest.raises(UserError):
        list(read_programs(tmp_path))


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data at {DATA}: set ND_DATA")
@pytest.mark.parametrize(("name", "rows", "stated"), [("cruxeval", 800, 800), ("mbpp", 964, 963)])
def test_every_row_of_the_public_sets_gives_a_program(name: str, rows: int, stated: int):
    programs = [item for item in read_programs(DATA / f"{name}.jsonl") if isinstance(item, Program)]
    assert len(programs) == len({program.id for program in programs}) == rows
    assert sum(program.output is not None for program in programs) == stated
    assert not any("\r" in program.source for program in programs)
