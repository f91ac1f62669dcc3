import json

import pytest

from nd_jax.corpus.card import make_card, type_of, write_card
from nd_jax.corpus.collected import read_calls, split_of_call
from nd_jax.language.symbols import TokenizerSpec
from nd_jax.language.training import train_on_datasets
from nd_jax.tracing.collect import bring_in


@pytest.fixture(scope="module")
def dataset(recorded, tmp_path_factory):
    out = tmp_path_factory.mktemp("card") / "traces"
    return bring_in(read_calls(recorded[1]), out, split=split_of_call)


@pytest.fixture(scope="module")
def tokenizer(dataset):
    return train_on_datasets((dataset.directory,), TokenizerSpec(vocab_size=400, lines=16, frames=8), 0)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("None", "None"), ("True", "bool"), ("-3", "int"), ("<int 200 bits>", "int"), ("1e-05", "float"),
        ("-inf", "float"), ("'a: b'", "str"), ("b'x'", "bytes"), ("[1]", "list"), ("(1,)", "tuple"),
        ("{}", "dict"), ("{'a:': 1}", "dict"), ("{'a: \\'', 'b'}", "set"), ("{(1, {2: 3}), 4}", "set"),
        ("set()", "set"), ("<function f>", "opaque"), ("Square(side=1)", "object"),
        ("OrderedDict()", "object"),
    ],
)  # fmt: skip
def test_types_by_text(text, kind):
    assert type_of(text) == kind


def test_counts(dataset, tokenizer):
    card = make_card(dataset, tokenizer, sample=1000)
    traces = list(dataset)
    assert sum(card["traces"].values()) == len(traces)
    assert card["programs"] == len({trace.source for trace in traces})
    assert card["events"]["total"] == sum(len(trace.events) for trace in traces)
    assert sum(card["events"]["histogram"].values()) == len(traces)
    assert card["events"]["max"] == max(len(trace.events) for trace in traces)
    assert card["frames"]["total"] == sum(len(trace.functions) for trace in traces)
    assert card["depth"]["max"] == max(event.depth for trace in traces for event in trace.events) + 1
    assert sum(card["event_kinds"].values()) == card["events"]["total"]
    assert card["results"]["exception"] == 1
    assert card["value_types"]["object"] > 0
    assert card["dropped"]["argument cut"] == 1
    assert card["python"] == {traces[0].python: len(traces)}
    assert card["tokens"]["sampled"] + sum(card["tokens"]["refused"].values()) == len(traces)


def test_writes_the_card(dataset, tokenizer):
    card = write_card(dataset, tokenizer, sample=3)
    folder = dataset.directory
    assert json.loads((folder / "card.json").read_text()) == card
    assert card["tokens"]["sampled"] <= 3
    text = (folder / "card.md").read_text()
    assert f"{len(dataset)} recorded runs" in text
    assert "| argument cut | 1 |" in text
    assert (folder / "card.png").read_bytes().startswith(b"\x89PNG")
