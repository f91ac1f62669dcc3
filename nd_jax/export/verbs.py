"""What `nd export` and `nd import` do."""

from pathlib import Path
from typing import Any

from nd_jax.console import console, table
from nd_jax.errors import UserError
from nd_jax.export import check as checking
from nd_jax.export.folder import Trained, load, read_folder, write_folder
from nd_jax.tracing.dataset import open_traces
from nd_jax.training.checkpoint import save_for_inference


def export(
    checkpoint: Path,
    out: Path,
    licence: str,
    check: bool,
    traces: tuple[Path, ...],
    cruxeval: Path | None,
    config: checking.CheckConfig,
) -> dict[str, Any]:
    """Export a checkpoint; the arguments are those of `nd export`."""
    model, run = load(checkpoint)
    write_folder(model, run, out, licence)
    shape = model.record.experiment.model
    layout = "Qwen3" if shape.qk_norm else "Llama"
    files = sum(path.stat().st_size for path in out.iterdir())
    console.print(f"wrote {out}: {layout} layout, {shape.parameters():,} parameters, {files / 1e6:.1f} MB")
    figures = {"layout": layout, "parameters": shape.parameters(), "bytes": files}
    return figures | ({"check": _check(out, model, traces, cruxeval, config)} if check else {})


def _check(
    folder: Path,
    model: Trained,
    traces: tuple[Path, ...],
    cruxeval: Path | None,
    config: checking.CheckConfig,
) -> dict[str, Any]:
    datasets = traces or tuple(map(Path, model.record.experiment.data.traces))
    held_out = [trace for path in datasets for trace in open_traces(path, "heldout")]
    questions = None if cruxeval is None else checking.cruxeval_questions(cruxeval, model, config.prompts)
    figures = checking.check(folder, model, held_out, config, questions)
    greedy, tokenizer = figures["greedy"], figures["tokenizer"]
    rows = [
        [f"logits: {name}, largest difference", f"{value:.1e}"] for name, value in figures["logits"].items()
    ]
    rows += [
        ["greedy continuations equal", f"{greedy['equal']} of {greedy['n']}"],
        ["sessions with equal ids", f"{tokenizer['equal']} of {tokenizer['n']}"],
        ["sessions decoded to their text", f"{tokenizer['decoded']} of {tokenizer['n']}"],
    ]
    table(
        f"{figures['class']} in transformers {figures['transformers']}, beside nd_jax",
        ["what", "value"],
        rows,
    )
    if told := checking.differences(figures, config):
        raise UserError(f"{folder} differs in transformers: {'; '.join(told)}")
    return figures


def bring_in(folder: Path, out: Path) -> dict[str, Any]:
    """Make a run with one checkpoint of an exported folder; the arguments are those of `nd import`."""
    model = read_folder(folder)
    path = save_for_inference(out, *model)
    console.print(f"wrote {path}; it has no optimizer state, so it is for evaluation, not for training on")
    return {"checkpoint": str(path), "step": model.record.step}
