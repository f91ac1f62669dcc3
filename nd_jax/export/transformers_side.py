"""The other side of `nd_jax.export.check`: an exported folder in transformers.

    python transformers_side.py FOLDER WORK

WORK holds ``cases.npz`` (of every case tokens, mask and positions, each `[B, T]`), ``texts.json`` (texts to
encode) and ``prompts.json`` ({prompts, new}); ``logits.npz`` and ``answer.json`` are written beside them. It
runs in the environment of `make interop`. Nothing imports it: its environment has no jax, ours no torch.
"""
# pyright: reportMissingImports=false

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

BATCH = 20


def main(folder: Path, work: Path) -> None:
    """Answer everything in WORK."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    model.eval()
    asked = json.loads((work / "prompts.json").read_text(encoding="utf-8"))
    with torch.inference_mode():
        logits = _logits(model, np.load(work / "cases.npz"))
        np.savez(work / "logits.npz", **logits)  # pyright: ignore[reportArgumentType]
        continued = [
            ids
            for start in range(0, len(asked["prompts"]), BATCH)
            for ids in _continue(model, asked["prompts"][start : start + BATCH], asked["new"])
        ]
    texts = json.loads((work / "texts.json").read_text(encoding="utf-8"))
    encoded = [tokenizer(text)["input_ids"] for text in texts]
    answer = {
        "transformers": transformers.__version__,
        "class": type(model).__name__,
        "loading": {name: sorted(map(str, loading[name])) for name in ("missing_keys", "unexpected_keys")},
        "continued": continued,
        "encoded": encoded,
        "decoded": [tokenizer.decode(ids) for ids in encoded],
    }
    (work / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def _logits(model, cases) -> dict[str, np.ndarray]:
    names = sorted({name.partition("/")[0] for name in cases})
    given = {
        name: [torch.from_numpy(cases[f"{name}/{part}"].astype(np.int64)) for part in PARTS] for name in names
    }
    return {
        name: model(input_ids=tokens, attention_mask=mask, position_ids=positions).logits.numpy()
        for name, (tokens, mask, positions) in given.items()
    }


PARTS = ("tokens", "mask", "positions")


def _continue(model, prompts: list[list[int]], new: int) -> list[list[int]]:
    """Greedy continuations, up to and including the first token that stops, padded on the left as usual."""
    length = max(map(len, prompts))
    config = model.generation_config
    rows = [[config.pad_token_id] * (length - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (length - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    ids = model.generate(
        torch.tensor(rows), attention_mask=torch.tensor(mask), max_new_tokens=new, do_sample=False
    )
    stops = set(config.eos_token_id)
    continued = []
    for row in ids[:, length:].tolist():
        end = next((place for place, i in enumerate(row) if i in stops), len(row) - 1)
        continued.append(row[: end + 1])
    return continued


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
