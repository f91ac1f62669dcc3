"""The model card of an exported model: what it is, how to prompt it, data, scores, licence."""

from pathlib import Path

from nd_jax.errors import UserError
from nd_jax.evaluation.pages import read_results
from nd_jax.evaluation.report import Table, cruxeval_table, markdown, states_table
from nd_jax.language.symbols import STATE_END
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.training.checkpoint import RunRecord

_TEXT = """\
# A neural debugger

A decoder-only transformer of {parameters:,} parameters that emulates a Python debugger: it reads a program,
the debugger's states and an action, and writes the next state, forwards or backwards. Trained from scratch
with `nd_jax`; {layout} layout, which the stock `transformers` class `{architecture}` loads.

## Use

A prompt is a session as `nd_jax` renders it: the program, each line behind its pointer, a state, an action.
What the model writes up to `{state_end}` is the next state.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".")
prompt = (
    "<|begin_of_text|><|trace_context_start|><|line_1|>def f(x):\\n<|line_2|>    return x + 1\\n"
    "<|call_sep|><|line_1|>x=1\\n<|frame_sep|><|step_into|>"
)
inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
ids = model.generate(**inputs, max_new_tokens=64)
print(tokenizer.decode(ids[0]))
```

**Text that you do not trust.** In this tokenizer, as in every stock one, the text of a marker
(`<|step_into|>`) *is* the marker, so a program or value that contains one can forge an action or a state.
Prompts made of such text have to go by ids: `nd_jax.language.tokenizer.Tokenizer.load(FOLDER)` reads this
folder too, and never makes a marker of text. Text without markers gets the same ids in both.

It has read at most {row_length} tokens at once. Weights are float32.
"""


def card(record: RunRecord, tokenizer: Tokenizer, run: Path, licence: str) -> str:
    """Write the card.

    Args:
      record: of the model's run.
      tokenizer: the model's.
      run: the run, below which `nd eval` kept its scores.
      licence: of the weights, as the Hugging Face hub names it.
    """
    experiment = record.experiment
    model, data = experiment.model, experiment.data
    layout = "Qwen3" if model.qk_norm else "Llama"
    text = _TEXT.format(
        parameters=model.parameters(),
        layout=layout,
        architecture=f"{layout}ForCausalLM",
        state_end=STATE_END,
        row_length=data.row_length,
    )
    trained = Table(
        "Training",
        ("what", "value"),
        [
            ("trace datasets", ", ".join(data.traces)),
            ("fingerprint of the rows", record.data),
            ("steps", record.step),
            ("tokens read", record.step * data.global_batch * data.row_length),
            ("optimizer", experiment.optimizer.name),
            ("layers", model.n_layers),
            ("width", model.d_model),
            ("vocabulary", model.vocab_size),
            ("tokenizer's fingerprint", tokenizer.fingerprint),
        ],
        "Rows are debugger sessions sampled on recorded runs of programs. One program in twenty, by a hash "
        "of its source, is held out. All settings are in `nd_run.json`.",
    )
    front = (
        f"---\nlicense: {licence}\nlibrary_name: transformers\npipeline_tag: text-generation\n"
        "tags: [nd_jax]\n---\n"
    )
    return (
        "\n\n".join([front + text.rstrip(), markdown(trained), *_scores(run), f"## Licence\n\n{licence}"])
        + "\n"
    )


def _scores(run: Path) -> list[str]:
    try:
        results = read_results(run)
    except UserError:
        return ["## Scores\n\nNot evaluated when it was exported."]
    tables = [
        states_table(figures, f"Next states: {name.removeprefix('states-')}")
        for name, figures in results.items()
        if name.startswith("states-")
    ]
    answers = [figures for name, figures in results.items() if name.startswith("cruxeval-")]
    return [markdown(table) for table in [*tables, *([cruxeval_table(answers)] if answers else [])]]
