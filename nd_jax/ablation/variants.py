"""What is compared: variants of the trace language, its tokenizer and its loss, and how a study is run.

Nothing here imports jax, so that ``nd ablate --help`` is quick.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from nd_jax.language.symbols import SMALL, TokenizerSpec


@dataclass(frozen=True)
class Variant:
    """One form to be tried; all else is the study's."""

    question: str
    """What it is tried for."""
    spec: TokenizerSpec = SMALL
    """What its tokenizer can express; a tokenizer of its own is trained for each."""
    context_weight: float | None = None
    """Loss weight of the program and the start state; None: the experiment's."""
    place_weight: float | None = None
    """Factor on the loss weight of events, lines and frames; None: the experiment's."""
    random_line_numbers: bool | None = None
    """Lines numbered from a random one; None: as the experiment has it."""
    more_traces: bool = False
    """Trained on the study's further datasets too."""


BASE = "base"
"""The variant that all others are compared with."""

VARIANTS = {
    BASE: Variant("the form as it is: 1,024 pieces, 64 lines, 16 frames"),
    "vocab-512": Variant("fewer, shorter pieces", replace(SMALL, vocab_size=512)),
    "vocab-2048": Variant("more, longer pieces", replace(SMALL, vocab_size=2048)),
    "vocab-8192": Variant("the shipped tokenizer's number of pieces", replace(SMALL, vocab_size=8192)),
    "pieces-2": Variant("pieces of two characters at most: near to characters",
                        replace(SMALL, max_piece_length=2)),
    "letters": Variant("values spelled letter by letter", replace(SMALL, values="letters")),
    "pieces-4": Variant("pieces of four characters at most", replace(SMALL, max_piece_length=4)),
    "lines-512": Variant("symbols for long programs, with as many pieces of text as the base",
                         replace(SMALL, vocab_size=1024 + 448 + 48, lines=512, frames=64)),
    "line-last": Variant("the line behind the bindings", replace(SMALL, line_last=True)),
    "echo-line": Variant("the line's source in every state", replace(SMALL, echo_line=True)),
    "all-names": Variant("every name in every state", replace(SMALL, all_names=True)),
    "all-frames": Variant("the frame in every state", replace(SMALL, all_frames=True)),
    "random-lines": Variant("lines numbered from a random one", random_line_numbers=True),
    "more-traces": Variant("other programs too (--more-traces)", more_traces=True),
    "context-0": Variant("no loss on what is given", context_weight=0.0),
    "context-0.1": Variant("a tenth of the loss on what is given", context_weight=0.1),
    "places-1": Variant("events and lines as values, a tenth on what is given",
                        context_weight=0.1, place_weight=1.0),
    "weights-1": Variant("all that is predicted weighs the same", context_weight=1.0, place_weight=1.0),
}  # fmt: skip
"""The registry of variants, by name."""


@dataclass(frozen=True)
class AblationConfig:
    """A study: every variant once at an equal token budget, then the best and the base with more seeds."""

    traces: Path = Path("runs/quickstart/traces")
    """Trace dataset: its train split is trained on, its held-out split measured on."""

    more_traces: tuple[Path, ...] = ()
    """Further trace datasets, for the variant `more-traces`; each row's dataset is drawn by their numbers of
    traces. If there are any, all tokenizers are trained on all datasets."""

    cruxeval: Path | None = None
    """CRUXEval's file, to measure on its traces too, and the finalists on its two tasks."""

    out: Path = Path("runs/ablation")
    """Directory of everything it makes."""

    experiment: Path = Path("configs/nano.py")
    """Model, optimiser and rows that all variants share."""

    variants: tuple[str, ...] = tuple(name for name in VARIANTS if not VARIANTS[name].more_traces)
    """Which variants, by name; the base is always among them."""

    tokens: int = 1_000_000
    """Tokens that each run trains on, padding included."""

    max_seconds: float = 240.0
    """Wall time of one run's training, compilation not counted (8 CPU-minutes on 2 cores). A run that does
    not see its tokens within it is shown apart and not compared: give fewer tokens."""

    finalists: int = 3
    """How many of the best variants go on to the second stage, beside the base."""

    seeds: int = 2
    """Further seeds, for parameters and rows, of each run of the second stage."""

    sessions: int = 500
    """Debugger sessions that each run is measured on, of held-out programs and of CRUXEval each."""

    seed: int = 0
    """Seeds tokenizers, sessions and resampling, and is the first seed of the runs."""

    workers: int = 2
    """Processes that record and execute CRUXEval's programs."""

    json: Path | None = None
    """Also write all figures to this file."""
