"""A model of Llama's layout, trained and exported, answers CRUXEval in transformers as in `nd eval`."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from run_verb import nd

from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.evaluation import cruxeval
from nd_jax.evaluation.verbs import load

ROOT = Path(__file__).parents[2]
PROGRAMS = [
    {"code": f"def f(x):\n    {line}\n    return x", "input": given, "output": "", "id": f"sample_{k}"}
    for k, (line, given) in enumerate(
        [("x = x + 1", "1"), ("x = x * 2", "4"), ("x = x + x", "'ab'"), ("x = x[1:]", "[1, 2, 3]"),
         ("x = len(x)", "'abc'"), ("x = -x", "7")]
    )
]  # fmt: skip
TRANSFORMERS = """
import json, sys, torch
from transformers import LlamaForCausalLM

asked = json.load(sys.stdin)
model = LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
for prompt in asked["prompts"]:
    ids = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=asked["new"], do_sample=False, eos_token_id=asked["stop"],
    )
    print(json.dumps(ids[0, len(prompt):].tolist()))
"""


class InTransformers:
    """Stands for our decoder: the stock class, in the environment that has it, writes the answers."""

    def __init__(self, python: Path, folder: Path):
        self.python, self.folder = python, folder

    def generate(self, prompts, stop, new, sampling, constraint):
        asked = json.dumps({"prompts": prompts, "stop": stop, "new": new})
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        done = subprocess.run(
            [self.python, "-I", "-c", TRANSFORMERS, self.folder], input=asked, env=environment,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        self.prompts, self.stop = prompts, stop
        self.written = [json.loads(line) for line in done.stdout.splitlines()]
        return [[SimpleNamespace(ids=ids)] for ids in self.written]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A directory with a short run of configs/nano.py without QK-norm, and it exported."""
    out = tmp_path_factory.mktemp("made")
    nd("trace", "--synthetic", 300, "--out", out / "traces", "--generator.max-lines", 8)
    nd("tokenizer", "train", "--traces", out / "traces", "--vocab-size", 512, "--lines", 64, "--frames", 16,
       "--values", "letters", "--out", out / "tokenizer")  # fmt: skip
    nd("train", ROOT / "configs/nano.py", "--out", out / "run", "--data.traces", out / "traces",
       "--data.tokenizer", out / "tokenizer", "--model.vocab_size", 512, "--model.qk_norm", False,
       "--model.d_model", 64, "--model.n_layers", 2, "--model.n_heads", 2, "--model.n_kv_heads", 2,
       "--model.head_dim", 32, "--model.d_ff", 128, "--mesh.fsdp", 8, "--data.global_batch", 8,
       "--train.steps", 60)  # fmt: skip
    nd("export", out / "run", "--out", out / "exported")
    (out / "cruxeval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROGRAMS))
    return out


def test_a_trained_llama_answers_as_nd_eval(made, interop):
    assert json.loads((made / "exported/config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    nd("eval", "cruxeval", "--data", made / "cruxeval.jsonl", "--task", "output", "--max-new", 24,
       "--checkpoint", made / "run")  # fmt: skip
    ours = json.loads((made / "run/eval/cruxeval-output-generations.json").read_text())
    config = cruxeval.CruxevalConfig(max_new=24, workers=1)
    programs = cruxeval.load(made / "cruxeval.jsonl")
    outcomes = cruxeval.run_all(programs, config)
    model = load(made / "run")
    stock = InTransformers(interop, made / "exported")
    theirs = cruxeval.answer(programs, outcomes, model.tokenizer, stock, config)
    assert {p.id: texts or [""] for p, texts in zip(programs, theirs.texts, strict=True)} == ours
    # So short a run answers little: what it wrote is compared token by token too.
    decoder = Decoder(model.experiment.model, model.params, DecodeConfig(max_new_tokens=24))
    assert decoder.greedy(stock.prompts, stock.stop) == stock.written
    assert len(stock.written) == len(PROGRAMS)
