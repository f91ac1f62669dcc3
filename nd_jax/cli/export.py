"""Verbs that write a checkpoint in other formats, and bring it back."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import tyro


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


VERBS: dict[str, Callable[..., None]] = {
    "export": export,
    "import": import_,
}
