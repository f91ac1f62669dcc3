"""The other side of `benchmarks.decode`: transformers' `generate`, in the environment of `make interop`.

    python transformers_generate.py FOLDER NEW THREADS

FOLDER holds config.json, weights.npz and prompts.npy. Every line read from standard input asks for a run, and
is answered by a line of JSON, {seconds, cpu_seconds, ids}. Nothing imports it: its environment has no jax,
ours no torch.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers_model import load


def main(folder: Path, new: int, threads: int) -> None:
    """Serve until standard input ends."""
    model = load(folder, threads).eval()
    prompts_BxP = torch.from_numpy(np.load(folder / "prompts.npy").astype(np.int64))
    options = {
        "max_new_tokens": new, "do_sample": False, "use_cache": True, "eos_token_id": None, "pad_token_id": 0,
        "attention_mask": torch.ones_like(prompts_BxP),
    }  # fmt: skip
    for _ in sys.stdin:
        start, cpu_start = time.perf_counter(), time.process_time()
        with torch.inference_mode():
            ids = model.generate(prompts_BxP, **options)
        answer = {
            "seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - cpu_start,
            "ids": ids[:, prompts_BxP.shape[1] :].tolist(),
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
