"""The command `nd`: one function per verb, each thin over the package that does the work; a file per group.

Imports of a verb stand inside its function, so that ``nd --help`` and the verbs that need no jax start at
once.
"""

import inspect
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import tyro

from nd_jax.ablation.variants import AblationConfig
from nd_jax.cli import evaluate, experiment, export, scaling, tokenizer, trace
from nd_jax.corpus import beam_verbs, filter_verbs
from nd_jax.corpus.verbs import VERBS as CORPUS_VERBS
from nd_jax.errors import UserError
from nd_jax.quickstart import QuickstartConfig
from nd_jax.sweep import verbs as sweep


def quickstart(config: Annotated[QuickstartConfig, tyro.conf.arg(name="")] = QuickstartConfig()) -> None:
    """Record programs, train a tokenizer and a small neural debugger on them, evaluate it, and step with it.

    Everything is kept in one directory; a second call goes on where the first one stopped.

    Examples:
      nd quickstart
      nd quickstart --out runs/quick --programs 2000 --train-seconds 60
      nd quickstart --cruxeval cruxeval.jsonl
    """
    from nd_jax.quickstart import run

    run(config)


def ablate(config: Annotated[AblationConfig, tyro.conf.arg(name="")] = AblationConfig()) -> None:
    """Compare variants of the trace language, each trained on as many tokens, by bits per state.

    Each variant once, then the best ones and the base with more seeds. A second call goes on where the first
    one stopped: runs that are done are kept.

    Examples:
      nd ablate --traces traces/synthetic --cruxeval cruxeval.jsonl
      nd ablate --variants vocab-512 vocab-2048 --tokens 500000 --out runs/vocabulary
    """
    from nd_jax.ablation.running import run

    run(config)


VERBS: dict[str, Callable[..., None]] = {
    "quickstart": quickstart,
    **trace.VERBS,
    **tokenizer.VERBS,
    **experiment.VERBS,
    **evaluate.VERBS,
    "ablate": ablate,
    **export.VERBS,
    **scaling.VERBS,
    "sweep": sweep.sweep,
    "sweep run": sweep.run,
    "sweep status": sweep.status,
    "sweep collect": sweep.collect,
    **CORPUS_VERBS,
    **filter_verbs.VERBS,
    **beam_verbs.VERBS,
}


def main() -> None:
    """Run the verb that the command line names.

    Exits with 0 when it is done, 2 for a mistake of the user's (one line says which), 130 on Ctrl-C.
    """
    words = sys.argv[1:]
    name = next((name for n in (2, 1) if (name := " ".join(words[:n])) in VERBS), None)
    try:
        if name is None:
            _say_verbs(words)
        _run(name, words[len(name.split()) :])
    except UserError as error:
        print(f"nd {name}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # whoever reads the output has enough, as in `nd ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print(f"nd {name}: stopped", file=sys.stderr)
        raise SystemExit(130) from None


def _run(name: str, words: Sequence[str]) -> None:
    logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax warns of what is meant here
    # Compiled programs are kept between calls; jax reads this when it is imported.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "nd_jax"))
    verb = VERBS[name]
    if name in experiment.VERBS:
        verb(words)
    else:
        description = (inspect.getdoc(verb) or "").partition("\nArgs:")[0]
        tyro.cli(verb, prog=f"nd {name}", description=description, args=words)


def _say_verbs(words: Sequence[str]) -> NoReturn:
    """Print the verbs, or those of the group that the first word names, and exit."""
    helps = ("-h", "--help")
    group = {name: verb for name, verb in VERBS.items() if words and name.startswith(f"{words[0]} ")}
    rest = words[1:] if group else words
    asked = not rest or rest[0] in helps
    shown = group or VERBS
    lines = [f"  {name:22}{(inspect.getdoc(verb) or '').splitlines()[0]}" for name, verb in shown.items()]
    overview = "\n".join(
        [f"usage: nd {words[0] + ' ' if group else ''}VERB [options]", "",
         "Pretrain and evaluate neural debuggers.", "", *lines, "",
         "`nd VERB --help` shows a verb's options, with examples."]
    )  # fmt: skip
    wrong = f"nd: there is no verb {' '.join(words[: 2 if group else 1])!r}\n\n"
    print(overview if asked else wrong + overview, file=sys.stdout if asked else sys.stderr, flush=True)
    raise SystemExit(0 if asked else 2)
