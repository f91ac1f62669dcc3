"""How often our debugger stops where the interpreter's own does, on each interpreter present.

    python -m benchmarks.bdb_agreement --hard tests/hard_programs.jsonl
        [--programs FILE ...] [--limit 200] [--positions 25] [--interpreters PYTHON ...] [--json FILE]

Programs run in a process of each interpreter without any limits: give it files you trust.
`nd_jax.debugger.agreement` says what is compared, and which differences are meant. Exits with 1 if there are
others.
"""

import argparse
import shutil
import sys
from pathlib import Path

from nd_jax.console import console, table, write_json
from nd_jax.debugger.agreement import ACTIONS, run_with

COUNTS = ("tried", "agreed", "expected")


def interpreters() -> list[str]:
    """Give this interpreter, and one of each other version that the package supports, where there is one."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in (11, 12, 13):
        pyenv = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        other = shutil.which(f"python3.{minor}") if not pyenv else str(pyenv[-1])
        if other:
            found.setdefault((3, minor), other)
    return [found[version] for version in sorted(found)]


def main() -> None:
    """Compare, print the table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--hard", type=Path, required=True, help="programs to compare at every state and line"
    )
    parser.add_argument("--programs", type=Path, nargs="*", default=[], help="files of programs to sample")
    parser.add_argument("--limit", type=int, default=200, help="programs of each file")
    parser.add_argument("--positions", type=int, default=25, help="about how many states of each program")
    parser.add_argument("--interpreters", nargs="*", default=interpreters(), help="paths; all that are found")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()

    figures = {}
    for python in options.interpreters:
        found = run_with(python, options.hard, options.programs, options.limit, options.positions)
        figures[found["python"]] = found["programs"]
        rows = [
            [name, one["positions"], action, *(one[count][action] for count in COUNTS)]
            for name, one in found["programs"].items()
            for action in ACTIONS
        ]
        columns = ["programs", "positions", "action", "tried", "agreed", "differ as meant"]
        table(f"bdb agreement, Python {found['python']}", columns, rows)
        for name, one in found["programs"].items():
            for text in (*one["differing"], *(f"{id}: bdb steps otherwise" for id in one["other_stops"])):
                console.print(f"{name}: {text}", markup=False)
    write_json(options.json, figures)
    sys.exit(any(one["differing"] for programs in figures.values() for one in programs.values()))


if __name__ == "__main__":
    main()
