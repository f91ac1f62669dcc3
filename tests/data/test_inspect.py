"""A row as a person reads it says what the arrays hold."""

from nd_jax.data.config import DataConfig
from nd_jax.data.inspect import read_row, show_row
from nd_jax.data.layout import lay_out
from nd_jax.data.pipeline import RowStream
from nd_jax.data.rows import ROWS, RowSource
from nd_jax.language.symbols import ACTION_OF, END, PROGRAM, STATE_END

CONFIG = DataConfig(row_length=256, state_weight=1.0, action_weight=0.25, context_weight=0.5)


def test_all_tokens_are_shown_with_their_weights(traces, tokenizer):
    stream = RowStream(RowSource(traces, tokenizer, CONFIG), ROWS, {}, tokenizer)
    for number in range(5):
        row = read_row(stream, CONFIG, number)
        laid = {name: array[0] for name, array in lay_out(stream.rows[number], CONFIG, tokenizer).items()}
        assert row["tokens"] == (laid["segments"] > 0).sum() == CONFIG.row_length - row["padding"]
        assert len(row["sessions"]) == laid["segments"].max()
        text = "".join(text for parts in row["sessions"] for part in parts for _, text in part["segments"])
        shown = [s.text for s in tokenizer.segments(laid["tokens"][: row["tokens"]].tolist())]
        assert text == "".join(shown)
        for parts in row["sessions"]:
            assert parts[0]["weight"] == 0.5
            assert [PROGRAM in dict(map(reversed, part["segments"])) for part in parts] == [True] + [
                False
            ] * (len(parts) - 1)
            for k, part in enumerate(parts[1:]):
                assert part["weight"] == (1.0 if k % 2 else 0.25)
                assert (part["segments"][0][1] in ACTION_OF) == (k % 2 == 0)


def test_each_state_stands_on_a_line_behind_its_weight(traces, tokenizer):
    stream = RowStream(RowSource(traces, tokenizer, CONFIG), ROWS, {}, tokenizer)
    row = read_row(stream, CONFIG, 0)
    lines = [line.rstrip() for line in show_row(row).plain.split("\n")]
    symbols = [text for parts in row["sessions"] for part in parts for kind, text in part["segments"]
               if kind == "marker"]  # fmt: skip
    states, ends = symbols.count(STATE_END), symbols.count(END)
    steps = states - len(row["sessions"])
    assert sum(line.endswith("frame_sep") for line in lines) == states
    assert sum(line.startswith("    1 ") for line in lines) == steps + ends
    assert sum(line.startswith(" 0.25 ") for line in lines) == steps
