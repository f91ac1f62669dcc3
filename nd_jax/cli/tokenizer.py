"""Verbs that train tokenizers and look at them."""

import itertools
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from nd_jax.errors import UserError
from nd_jax.programs.splits import Selection


def tokenizer_train(
    traces: tuple[Path, ...],
    out: Path,
    vocab_size: int = 8192,
    lines: int = 512,
    frames: int = 64,
    values: Literal["pieces", "letters"] = "pieces",
    line_last: bool = False,
    echo_line: bool = False,
    all_names: bool = False,
    all_frames: bool = False,
    seed: int = 0,
    json: Path | None = None,
) -> None:
    """Train a tokenizer on the train splits of trace datasets.

    The same data, seed and sizes give the same tokenizer.

    Examples:
      nd tokenizer train --traces traces/synthetic traces/mbpp --out tokenizer
      nd tokenizer train --traces traces/synthetic --vocab-size 1024 --lines 64 --frames 16 --out small

    Args:
      traces: directories of trace datasets.
      out: directory of the new tokenizer.
      vocab_size: number of ids, markers and bytes included.
      lines: line symbols: programs with more lines are refused.
      frames: frame symbols: a session ends before it would need one more.
      values: write values in pieces, as all text is, or with every letter and digit alone.
      line_last: write a state's line behind its bindings or value.
      echo_line: write the line's source in every state.
      all_names: write all names in every state, not only those whose value differs.
      all_frames: write the frame in every state, not only where it is another.
      seed: seeds the sessions whose text it is trained on.
      json: also write {vocab_size, fingerprint, texts, characters} to this file.
    """
    from nd_jax.console import console, write_json
    from nd_jax.language.symbols import TokenizerSpec
    from nd_jax.language.training import train_on_datasets

    spec = TokenizerSpec(
        vocab_size=vocab_size,
        lines=lines,
        frames=frames,
        values=values,
        line_last=line_last,
        echo_line=echo_line,
        all_names=all_names,
        all_frames=all_frames,
    )
    tokenizer = train_on_datasets(traces, spec, seed)
    tokenizer.save(out)
    trained = tokenizer.trained
    console.print(
        f"trained {tokenizer.vocab_size} pieces on {trained['texts']} lines of text ({trained['characters']} "
        f"characters); wrote {out} (fingerprint {tokenizer.fingerprint})"
    )
    figures = {"vocab_size": tokenizer.vocab_size, "fingerprint": tokenizer.fingerprint}
    write_json(json, {**figures, "texts": trained["texts"], "characters": trained["characters"]})


def tokenizer_evaluate(
    traces: tuple[Path, ...],
    tokenizer: Path = Path("tokenizer"),
    split: Selection = "all",
    max_events: int | None = None,
    json: Path | None = None,
) -> None:
    """Count the tokens that traces take with every step shown, and check that each comes back exactly.

    Examples:
      nd tokenizer evaluate --traces traces/synthetic --split heldout
      nd tokenizer evaluate --tokenizer small --traces traces/cruxeval --max-events 399

    Args:
      traces: directories of trace datasets.
      tokenizer: directory of the tokenizer; by default the shipped one.
      split: which traces.
      max_events: leave longer traces out.
      json: also write {traces, tokens_mean, tokens_p95, bytes_per_token, roundtrip_failures, refused} there.
    """
    from nd_jax.console import table, track, write_json
    from nd_jax.language.measure import evaluate
    from nd_jax.language.tokenizer import Tokenizer
    from nd_jax.tracing.dataset import open_traces

    datasets = [open_traces(path, split) for path in traces]
    items = track(itertools.chain.from_iterable(datasets), "encoding", sum(map(len, datasets)))
    figures = asdict(evaluate(Tokenizer.load(tokenizer), items, max_events))
    by_kind = {f"bytes per token, {kind}": value for kind, value in figures["bytes_per_token"].items()}
    shown = {name: value for name, value in figures.items() if name != "bytes_per_token"} | by_kind
    table(f"tokens per trace, {tokenizer}", ["figure", "value"], shown.items())
    write_json(json, figures)


def tokenizer_inspect(
    tokenizer: Path = Path("tokenizer"),
    text: str | None = None,
    traces: Path | None = None,
    index: int = 0,
    longest: int = 20,
    json: Path | None = None,
) -> None:
    """Show a tokenizer's pieces by kind and its longest ones, and how it cuts a text or a trace.

    Examples:
      nd tokenizer inspect
      nd tokenizer inspect --tokenizer small --text "total = total + 1"
      nd tokenizer inspect --traces traces/cruxeval --index 3

    Args:
      tokenizer: directory of the tokenizer; by default the shipped one.
      text: a text to cut.
      traces: directory of a trace dataset, one trace of which to cut, every step shown.
      index: which trace, from 0.
      longest: how many of the longest pieces to show.
      json: also write {kinds, longest, text, trace} to this file.
    """
    from nd_jax.console import console, table, write_json
    from nd_jax.language.measure import cut_trace, longest_pieces, piece_kinds
    from nd_jax.language.tokenizer import Tokenizer
    from nd_jax.tracing.dataset import open_traces

    loaded = Tokenizer.load(tokenizer)
    kinds = piece_kinds(loaded)
    figures = {"kinds": kinds, "longest": longest_pieces(loaded, longest)}
    table(f"pieces of {tokenizer} (fingerprint {loaded.fingerprint})", ["kind", "pieces"], kinds.items())
    console.print("longest:", "  ".join(map(repr, figures["longest"])), markup=False)
    if text is not None:
        figures["text"] = [repr(loaded.piece(i))[2:-1] for i in loaded.encode_text(text)]
    if traces is not None:
        dataset = open_traces(traces, "all")
        if not 0 <= index < len(dataset):
            raise UserError(f"{traces} has {len(dataset)} traces: --index 0 to {len(dataset) - 1}")
        figures["trace"] = cut_trace(loaded, dataset[index])
    for name in ("text", "trace"):
        if name in figures:
            console.print(f"{name}, {len(figures[name])} tokens:", "|".join(figures[name]), markup=False)
    write_json(json, figures)


VERBS: dict[str, Callable[..., None]] = {
    "tokenizer train": tokenizer_train,
    "tokenizer evaluate": tokenizer_evaluate,
    "tokenizer inspect": tokenizer_inspect,
}
