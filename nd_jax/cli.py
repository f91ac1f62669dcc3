"""The command `nd`: one function per verb, each thin over the package that does the work.

Imports of a verb stand inside its function, so that ``nd --help`` and the verbs that need no jax start at
once.
"""

import argparse
import inspect
import itertools
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import tyro

from nd_jax.ablation.variants import AblationConfig
from nd_jax.corpus import beam_verbs, filter_verbs
from nd_jax.corpus.verbs import VERBS as CORPUS_VERBS
from nd_jax.errors import UserError
from nd_jax.programs.synthetic import SyntheticConfig
from nd_jax.quickstart import QuickstartConfig
from nd_jax.sweep import verbs as sweep
from nd_jax.tracing.pool import WorkerLimits

Split = Literal["train", "heldout", "all"]
QUICKSTART = QuickstartConfig()


def trace(
    out: Path,
    programs: tuple[Path, ...] = (),
    synthetic: int = 0,
    seed: int = 0,
    workers: int = os.cpu_count() or 1,
    verify: bool = True,
    limits: WorkerLimits = WorkerLimits(),
    generator: SyntheticConfig = SyntheticConfig(),
    json: Path | None = None,
) -> None:
    """Record programs into a trace dataset.

    Programs run in limited worker processes; one that misbehaves costs itself only and is counted by reason.
    More: nd trace import --help, nd trace show --help

    Examples:
      nd trace --synthetic 20000 --out traces/synthetic
      nd trace --programs mbpp.jsonl --out traces/mbpp --json counts.json
      nd trace show traces/mbpp --id mbpp/602

    Args:
      out: directory of the new dataset.
      programs: JSON lines files, in CRUXEval form (code, input) or MBPP form (code, test_list).
      synthetic: how many synthetic programs to generate; 20,000 if neither this nor --programs is given.
      seed: seeds the synthetic programs.
      workers: processes that record at the same time.
      verify: run each program a second time, under another hash seed, and drop it if its trace differs.
      limits: what one program may use.
      generator: what the synthetic programs are made of.
      json: also write {recorded, dropped: {reason: n}} to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.programs.jsonl import read_programs
    from nd_jax.programs.synthetic import generate
    from nd_jax.tracing.collect import collect, show_counts

    count = synthetic or (0 if programs else 20_000)
    read = itertools.chain.from_iterable(read_programs(path) for path in programs)
    items = itertools.chain(read, generate(generator, seed, 0, count))
    total = count + sum(map(_count_lines, programs))
    dataset = collect(items, out, limits, workers, verify, total)
    write_json(json, show_counts(dataset))


def _count_lines(path: Path) -> int:
    """Lines of a file that is there, to tell the time left; a missing one is the reader's to report."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(1 for _ in file)


def trace_import(
    file: tyro.conf.Positional[Path],
    out: Path,
    format: Literal["nd", "cwm"] = "nd",
    json: Path | None = None,
) -> None:
    """Bring in traces that were collected elsewhere.

    Each is checked against the invariants of a state tree; what breaks them is dropped with its reason.

    Examples:
      nd trace import traces.jsonl --out traces/mine
      nd trace import published.jsonl --format cwm --out traces/cwm

    Args:
      file: JSON lines of the trace schema (nd), or with CWM's published text (cwm).
      out: directory of the new dataset.
      format: which of the two.
      json: also write {recorded, dropped: {reason: n}} to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.tracing.collect import bring_in, show_counts
    from nd_jax.tracing.importer import import_traces

    write_json(json, show_counts(bring_in(import_traces(file, format), out, _count_lines(file))))


def trace_show(
    traces: tyro.conf.Positional[Path],
    id: str | None = None,
    index: int = 0,
    split: Split = "all",
    format: Literal["text", "cwm", "json"] = "text",
    json: Path | None = None,
) -> None:
    """Show one trace of a dataset.

    Examples:
      nd trace show traces/mbpp --id mbpp/602
      nd trace show traces/synthetic --index 7 --format cwm

    Args:
      traces: directory of the dataset.
      id: the program's id; else --index counts.
      index: which trace of the split, from 0.
      split: where to look.
      format: for people, in CWM's published format, or as the schema's JSON.
      json: also write the trace as JSON to this file.
    """
    import json as json_module

    from nd_jax.console import write_json
    from nd_jax.tracing.cwm import to_cwm
    from nd_jax.tracing.dataset import open_traces
    from nd_jax.tracing.pretty import show_trace
    from nd_jax.tracing.schema import to_json

    dataset = open_traces(traces, split)
    if id is not None:
        shown = next((trace for trace in dataset if trace.id == id), None)
        if shown is None:
            raise UserError(f"{traces} has no trace {id!r} in split {split}; ids look like {dataset[0].id!r}")
    elif 0 <= index < len(dataset):
        shown = dataset[index]
    else:
        raise UserError(
            f"{traces} has {len(dataset)} traces in split {split}: --index 0 to {len(dataset) - 1}"
        )
    print({"text": show_trace, "cwm": to_cwm, "json": to_json}[format](shown))
    write_json(json, json_module.loads(to_json(shown)))


def tokenizer_train(
    traces: tuple[Path, ...],
    out: Path,
    vocab_size: int = 8192,
    lines: int = 512,
    frames: int = 64,
    values: Literal["pieces", "letters"] = "pieces",
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
      seed: seeds the sessions whose text it is trained on.
      json: also write {vocab_size, fingerprint, texts, characters} to this file.
    """
    from nd_jax.console import console, write_json
    from nd_jax.language.symbols import TokenizerSpec
    from nd_jax.language.training import train_on_datasets

    spec = TokenizerSpec(vocab_size=vocab_size, lines=lines, frames=frames, values=values)
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
    split: Split = "all",
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


def pack(words: Sequence[str]) -> None:
    """Write the rows of a config file to disk, for when reading them must be faster than making them.

    usage: nd pack CONFIG --out DIR --rows N [--workers N] [--SETTING VALUE ...]

    Examples:
      nd pack configs/nano.py --out packed --rows 100000
      nd train configs/nano.py --data.packed packed

    A folder that holds some of these rows is added to. Training on them gives the same batches as without.
      --out DIR        the folder of rows
      --rows N         how many: a run reads steps times global batch
      --workers N      processes that make rows (default: one a core)
    """
    config, options, overrides = _config_words(pack, words, {"out": Path, "rows": int, "workers": int})
    if options.out is None or not options.rows or options.rows < 1:
        raise UserError("say where and how many: --out DIR --rows N")

    from nd_jax.console import console
    from nd_jax.data.pipeline import pack_rows
    from nd_jax.training.config import load_config

    data = load_config(config, overrides).data
    rows = pack_rows(data, options.out, options.rows, options.workers or os.cpu_count() or 1)
    console.print(f"{options.out} holds {rows} rows of {data.row_length} tokens")


def data_inspect(words: Sequence[str]) -> None:
    """Show a row that a config file trains on: what it says, and what of it is learned.

    usage: nd data inspect CONFIG [--row N] [--json FILE] [--SETTING VALUE ...]

    Examples:
      nd data inspect configs/nano.py --row 7
      nd data inspect configs/nano.py --data.policy.turning 9

      --row N          number of the row (default: 0)
      --json FILE      also write {row, tokens, padding, sessions} to this file
    """
    config, options, overrides = _config_words(data_inspect, words, {"row": int, "json": Path})

    from nd_jax.console import console, write_json
    from nd_jax.data.inspect import read_row, show_row
    from nd_jax.data.pipeline import open_rows
    from nd_jax.training.config import load_config

    data = load_config(config, overrides).data
    row = read_row(open_rows(data), data, options.row or 0)
    console.print(show_row(row), soft_wrap=True)
    write_json(options.json, row)


def _config_words(
    verb: Callable[..., None], words: Sequence[str], options: Mapping[str, Callable[[str], Any]]
) -> tuple[Path, argparse.Namespace, list[str]]:
    """Part a verb's words into its config file, its own options, and overrides of the config's settings."""
    name = verb.__name__.replace("_", " ")
    parser = argparse.ArgumentParser(prog=f"nd {name}", add_help=False, allow_abbrev=False)
    for option, kind in options.items():
        if kind is bool:
            parser.add_argument(f"--{option}", action="store_true")
        else:
            parser.add_argument(f"--{option}", type=kind)
    if not words or words[0].startswith("-"):
        print(inspect.getdoc(verb))
        raise SystemExit(0 if words and words[0] in ("-h", "--help") else 2)
    return Path(words[0]), *parser.parse_known_args(words[1:])


def train(words: Sequence[str]) -> None:
    """Train a model as a config file says, resuming where the run stopped.

    usage: nd train CONFIG [--out DIR] [--distributed] [--profile STEPS] [--json FILE] [--SETTING VALUE ...]

    Examples:
      nd train configs/nano.py --train.steps 200
      nd train configs/nano.py --help                     (all settings and their values there)
      nd train configs/nano.py --out runs/wide --model.d_model 256 --optimizer.learning_rate 0.002

    CONFIG is a Python file with `config = Experiment(...)`, or FILE.py:NAME, one of a file's `configs`. Its
    settings are overridden by dotted names.
      --out DIR        the run's directory: checkpoints, metrics.jsonl, TensorBoard (default: runs/CONFIG)
      --distributed    one of several processes, which jax finds (--distributed.cluster says otherwise how)
      --profile 10:15  trace these steps, for TensorBoard and Perfetto
      --json FILE      also write the run's figures to this file
    """
    own = {"out": Path, "json": Path, "distributed": bool, "profile": str}
    config, options, overrides = _config_words(train, words, own)

    from nd_jax.training.config import load_config, run_name

    experiment = load_config(config, overrides)
    if options.distributed and experiment.distributed.cluster == "none":
        experiment = replace(experiment, distributed=replace(experiment.distributed, cluster="auto"))
    if options.profile:
        experiment = replace(experiment, metrics=replace(experiment.metrics, profile=options.profile))

    from nd_jax.console import write_json
    from nd_jax.evaluation.during import hooks
    from nd_jax.training.distributed import end_process, initialize
    from nd_jax.training.run import run

    initialize(experiment.distributed)
    figures = run(experiment, options.out or Path("runs") / run_name(config), hooks(experiment))
    write_json(options.json, figures)
    if figures["stopped"] != "finished":
        end_process()


def plan(words: Sequence[str]) -> None:
    """Tell what a config file's training step costs on devices that are not there.

    usage: nd plan CONFIG --mesh SIZES [--chip NAME] [--compiler NAME] [--json FILE] [--SETTING VALUE ...]

    Examples:
      nd plan configs/nd_1p8b.py --mesh fsdp=64 --chip v5p
      nd plan configs/nd_1p8b.py --mesh replica=2,fsdp=32 --json plan.json
      nd plan configs/nd_350m.py --mesh fsdp=8 --data.global_batch 64 --model.remat full

    The real step is compiled ahead of time: bytes are the program's own, collectives are counted in it.
      --mesh SIZES     devices on each axis (replica, fsdp, sequence, tensor; those not named: 1)
      --chip NAME      whether it fits there, an estimate (v5e, v5p, v6e, h100, ...; default: all are told)
      --compiler NAME  cpu (default) or tpu: TPU's own compiler; needs libtpu, but no TPU
      --json FILE      also write {parameters, flops_per_step, bytes, total_bytes, collectives, fits} there
    """
    own = {"mesh": str, "chip": str, "compiler": str, "json": Path}
    config, options, overrides = _config_words(plan, words, own)
    compiler = options.compiler or "cpu"
    if options.mesh is None or compiler not in ("cpu", "tpu"):
        raise UserError("say which devices, and whose compiler: --mesh fsdp=64 --compiler cpu or tpu")

    from nd_jax.console import write_json
    from nd_jax.planning.plan import plan as make_plan
    from nd_jax.planning.plan import read_mesh, show
    from nd_jax.training.config import load_config

    experiment = replace(load_config(config, overrides), mesh=read_mesh(options.mesh))
    figures = make_plan(experiment, options.chip, compiler)
    show(figures)
    write_json(options.json, figures)


def eval_cruxeval(
    data: Path | None = None,
    task: Literal["output", "input", "both"] = "both",
    checkpoint: Path = QUICKSTART.out,
    predictions: Path | None = None,
    temperatures: tuple[float, ...] = (),
    samples: int = 10,
    top_p: float = 1.0,
    pass_at: tuple[int, ...] = (1,),
    constrained: bool = False,
    official: bool = False,
    seed: int = 0,
    out: Path | None = None,
    max_new: int = 128,
    workers: int = os.cpu_count() or 1,
    json: Path | None = None,
) -> None:
    """Score a model, or a file of answers, on CRUXEval, with the trivial baselines beside it.

    output: what does the call return (forward); input: which call returns this (inverse).

    Examples:
      nd eval cruxeval --data cruxeval.jsonl --checkpoint runs/quickstart
      nd eval cruxeval --data cruxeval.jsonl --temperatures 0.2 0.8 --pass-at 1 5 10 --constrained
      nd eval cruxeval --data cruxeval.jsonl --task input --predictions answers.json --official

    Args:
      data: the CRUXEval file; without it, it is downloaded by its tfds builder.
      task: which of the two; both, one after the other.
      checkpoint: run directory or checkpoint of the model.
      predictions: score these answers instead, in the official form {id: [answer, ...]}; needs one --task.
      temperatures: besides the greedy answers, draw some at each of these.
      samples: how many to draw for each program.
      top_p: draw from the most likely tokens that together have this probability.
      pass_at: the k of pass@k; each needs at least k answers to every program.
      constrained: also answer within the trace language's grammar, scored apart.
      official: also score as the official harness does, its quirks included.
      seed: seeds the drawing.
      out: directory for the answers, figures and tables; by default `eval` beside what is scored.
      max_new: tokens an answer may have.
      workers: processes that execute the answers to the input task.
      json: also write {task, n, official, strict, exact, baselines} to this file (by task where both ran).
    """
    from nd_jax.console import write_json
    from nd_jax.decoding.choosing import Sampling
    from nd_jax.evaluation.cruxeval import CruxevalConfig
    from nd_jax.evaluation.verbs import cruxeval, load

    tasks = ("output", "input") if task == "both" else (task,)
    if predictions is not None and task == "both":
        raise UserError("--predictions answers one task: add --task output or --task input")
    if max(pass_at) > 1 and predictions is None and not temperatures:
        raise UserError(f"pass@{max(pass_at)} needs several answers to a program: add --temperatures 0.2 0.8")
    if temperatures and max(pass_at) > samples:
        raise UserError(f"pass@{max(pass_at)} cannot be estimated from {samples} samples: raise --samples")
    config = CruxevalConfig(
        sampling=Sampling(top_p=top_p, samples=samples, seed=seed), pass_at=pass_at, official=official,
        max_new=max_new, workers=workers,
    )  # fmt: skip
    answers = predictions or load(checkpoint)
    figures = cruxeval(data, tasks, answers, config, temperatures, constrained, out)
    write_json(json, figures if task == "both" else figures[task])


def eval_states(
    traces: Path,
    checkpoint: Path = QUICKSTART.out,
    split: Split = "heldout",
    limit: int | None = None,
    sessions: int = 1000,
    seed: int = 0,
    executed: int = 200,
    out: Path | None = None,
    json: Path | None = None,
) -> None:
    """Measure next-state accuracy by action, event, skip and depth, with the trivial baseline beside it.

    Teacher-forced and free-running; entry calls that the model names for a return are also run.

    Examples:
      nd eval states --traces runs/quickstart/traces
      nd eval states --traces traces/cruxeval --split all --limit 200 --checkpoint runs/nano

    Args:
      traces: directory of a trace dataset.
      checkpoint: run directory or checkpoint of the model.
      split: heldout: the programs that training never saw.
      limit: only the first so many traces.
      sessions: how many debugger sessions to sample on them.
      seed: seeds the sampling.
      executed: on how many traces to ask for the entry call behind the return, and run it.
      out: directory for figures, tables and a heat map; by default below the checkpoint's run.
      json: also write {by_action: {step_into: {n, state, event_line, bindings, value}}, baselines} there.
    """
    from nd_jax.console import write_json
    from nd_jax.evaluation.verbs import load, states

    write_json(json, states(traces, load(checkpoint), split, limit, sessions, seed, executed, out))


def eval_loss(
    checkpoint: Path = QUICKSTART.out,
    traces: tuple[Path, ...] = (),
    rows: int = 400,
    json: Path | None = None,
) -> None:
    """Measure the loss on rows of held-out programs: the same for every model with this data and tokenizer.

    Kept below the run, where `nd scaling fit` takes it for the run's final loss.

    Examples:
      nd eval loss --checkpoint runs/nano
      nd eval loss --checkpoint runs/nano --traces traces/synthetic --rows 1000

    Args:
      checkpoint: run directory or checkpoint of the model.
      traces: directories of trace datasets; by default those that the model was trained on.
      rows: how many rows, of the length that it was trained on.
      json: also write {loss, accuracy, rows, weight} to this file.
    """
    from nd_jax.console import console, write_json
    from nd_jax.evaluation.heldout import heldout_loss
    from nd_jax.evaluation.pages import LOSS_FILE
    from nd_jax.evaluation.verbs import FOLDER, load

    model = load(checkpoint)
    named = traces or tuple(map(Path, model.experiment.data.traces))
    figures = heldout_loss(model, named, rows)
    console.print(f"held-out loss {figures['loss']:.4f} nats per token, {figures['accuracy']:.1%} right")
    write_json(checkpoint / FOLDER / LOSS_FILE, figures)
    write_json(json, figures)


def eval_report(runs: tyro.conf.Positional[tuple[Path, ...]], out: Path | None = None) -> None:
    """Put all that was evaluated of one run, or of several side by side, on one HTML page.

    Examples:
      nd eval report runs/quickstart
      nd eval report runs/nano runs/wide --out comparison

    Args:
      runs: directories of runs, each with the results of `nd eval` below it.
      out: directory of the page (report.html, and report.md with its pictures); by default `eval` below
        the first run.
    """
    from nd_jax.evaluation.pages import report

    report(runs, out)


def debug(
    file: tyro.conf.Positional[Path],
    call: tyro.conf.Positional[str],
    checkpoint: Path = QUICKSTART.out,
    backwards: bool = False,
    limits: WorkerLimits = WorkerLimits(),
) -> None:
    r"""Step through a program with the model, in pdb's words, beside the real execution.

    s, n, r, c, b LINE and l are pdb's; rs, rn, rf and rc go backwards; `help` lists all. The call is recorded
    first, in a limited worker; the model sees the program, the first state, and its own states since.

    Examples:
      nd debug average.py "average([3, 4, 8])"
      nd debug average.py "average([3, 4, 8])" --backwards --checkpoint runs/nano
      echo "s\ns\nc" | nd debug average.py "average([3, 4, 8])"

    Args:
      file: a Python file that defines functions.
      call: a call of one of them.
      checkpoint: run directory or checkpoint of the model.
      backwards: begin at the program's end: the model says what must have happened before.
      limits: what the recorded call may use.
    """
    from nd_jax.debug import debug

    debug(file, call, checkpoint, backwards, limits)


def export(
    checkpoint: tyro.conf.Positional[Path],
    out: Path,
    format: Literal["hf"] = "hf",
    licence: str = "apache-2.0",
    check: bool = False,
    traces: tuple[Path, ...] = (),
    cruxeval: Path | None = None,
    interop: Path = Path(".venv-interop/bin/python"),
    json: Path | None = None,
) -> None:
    """Write a checkpoint as a folder in Hugging Face's format, which stock transformers reads.

    Llama's layout, or Qwen3's where queries and keys are normalised; the stock classes load it.

    Examples:
      nd export runs/quickstart --out exported
      nd export runs/quickstart --out exported --check            (after `make interop`)
      nd export runs/nano/checkpoints/1500 --out exported --check --cruxeval cruxeval.jsonl

    Args:
      checkpoint: run directory or checkpoint of the model.
      out: the new folder; one that this verb wrote before is replaced.
      format: hf: Hugging Face's (safetensors, config.json, tokenizer.json, model card).
      licence: of the weights, for the model card, as the Hugging Face hub names it.
      check: compare with transformers: logits on ordinary and odd inputs, greedy decoding, token ids.
      traces: datasets on whose held-out programs to compare; by default those that the model was trained on.
      cruxeval: compare greedy decoding on this CRUXEval file's output questions instead.
      interop: Python of an environment with transformers, which `make interop` makes.
      json: also write {layout, parameters, bytes, check: {logits, greedy, tokenizer}} to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.export import verbs
    from nd_jax.export.check import CheckConfig

    del format  # there is one
    config = CheckConfig(interop=interop)
    write_json(json, verbs.export(checkpoint, out, licence, check, traces, cruxeval, config))


def import_(folder: tyro.conf.Positional[Path], out: Path, json: Path | None = None) -> None:
    """Bring an exported folder back as a run with one checkpoint, bit for bit.

    Examples:
      nd import exported --out runs/again
      nd eval cruxeval --data cruxeval.jsonl --checkpoint runs/again

    Args:
      folder: what `nd export` wrote.
      out: directory of the new run.
      json: also write {checkpoint, step} to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.export.verbs import bring_in

    write_json(json, bring_in(folder, out))


def scaling_ladder(
    config: tyro.conf.Positional[Path],
    chip: str = "v5e",
    peak_flops: float | None = None,
    utilisation: float = 0.4,
    json: Path | None = None,
) -> None:
    """List the sizes of a ladder: parameters, tokens, FLOPs, and estimated hours of a chip.

    Examples:
      nd scaling ladder configs/ladder.py
      nd scaling ladder configs/ladder.py --chip h100 --utilisation 0.5
      nd train configs/ladder.py:162k

    Args:
      config: config file with `configs = {name: Experiment(...)}`.
      chip: whose peak FLOP/s (bfloat16) the hours are estimated with, by the names of `nd plan --chip`.
      peak_flops: or this peak, in FLOP/s.
      utilisation: share of the peak that training reaches.
      json: also write {chip, peak_flops, utilisation, rungs: {name: {parameters, tokens, flops, ...}}}.
    """
    from nd_jax.console import write_json
    from nd_jax.scaling.verbs import ladder
    from nd_jax.training.config import load_configs

    write_json(json, ladder(load_configs(config), chip, peak_flops, utilisation))


def scaling_fit(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    out: Path = Path("scaling"),
    huber: float = 1e-2,
    resamples: int = 200,
    seed: int = 0,
    json: Path | None = None,
) -> None:
    """Fit L(N, D) = E + A/N^alpha + B/D^beta to the final losses of runs, and what follows from it.

    Bootstrap intervals; the largest size predicted by the others; iso-FLOP parabolas; the compute-optimal
    frontier; next-state accuracy and CRUXEval against compute, where runs were evaluated.

    Examples:
      nd scaling fit runs/ladder-*
      nd scaling fit studies/cpu --out fitted
      nd scaling fit points.jsonl          (lines of {"parameters": N, "tokens": D, "loss": L})

    Args:
      runs: runs, folders of runs, or files of points.
      out: directory of scaling.json, scaling.png and points.jsonl (all that the fit needs of the runs).
      huber: difference of log losses beyond which a run counts linearly.
      resamples: of the bootstrap.
      seed: seeds it.
      json: also write the figures to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.scaling.law import FitConfig
    from nd_jax.scaling.verbs import fit

    write_json(json, fit(runs, out, FitConfig(huber=huber, resamples=resamples, seed=seed)))


def quickstart(config: Annotated[QuickstartConfig, tyro.conf.arg(name="")] = QUICKSTART) -> None:
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
    "trace": trace,
    "trace import": trace_import,
    "trace show": trace_show,
    "tokenizer train": tokenizer_train,
    "tokenizer evaluate": tokenizer_evaluate,
    "tokenizer inspect": tokenizer_inspect,
    "data inspect": data_inspect,
    "pack": pack,
    "train": train,
    "plan": plan,
    "eval states": eval_states,
    "eval cruxeval": eval_cruxeval,
    "eval loss": eval_loss,
    "eval report": eval_report,
    "debug": debug,
    "ablate": ablate,
    "export": export,
    "import": import_,
    "scaling ladder": scaling_ladder,
    "scaling fit": scaling_fit,
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
    if verb in (train, plan, pack, data_inspect):
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
