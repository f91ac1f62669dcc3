import json
import pickle
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions import any_text, sessions

from nd_jax.debugger.actions import STEP_INTO, Action
from nd_jax.debugger.policy import PolicyConfig, full_walk, sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.errors import UserError
from nd_jax.language.encoded import unpack_ids
from nd_jax.language.measure import evaluate
from nd_jax.language.parse import parse
from nd_jax.language.render import render
from nd_jax.language.session import Session, ShownState, Unrenderable, show
from nd_jax.language.symbols import (
    ACTIONS,
    STATE_END,
    SYMBOL_KINDS,
    Role,
    Segment,
    TokenizerSpec,
    number_of,
    pointer,
)
from nd_jax.language.tokenizer import MODEL_FILE, SPEC_FILE, Tokenizer
from nd_jax.language.training import train, training_texts
from nd_jax.tracing.schema import Trace

HARD_TEXTS = [
    *("", "\u2581", " \u2581 ", "\u2423 ", "\0", "a\r\nb", "\r", "\ufeff", "e\u0301", "\u202eabc", "\uff21"),
    *(" " * 50, "\t\t  \t", "<|step_into|><|frame_sep|>", "<0x0A>", "<unk></s><|unknown|><|pad|>"),
]


@pytest.fixture(scope="module")
def tokenizers(tokenizer: Tokenizer, texts: list[str]) -> list[Tokenizer]:
    """Several, so that nothing holds by luck of the pieces; one spells values, one has another form."""
    form = dict.fromkeys(("line_last", "echo_line", "all_names", "all_frames"), True)
    return [
        tokenizer,
        train([*texts, "\u2581 \u2423 \t é 变 \U0001f600" * 9], replace(tokenizer.spec, vocab_size=500), {}),
        train(texts, replace(tokenizer.spec, values="letters"), {}),
        train(texts, replace(tokenizer.spec, **form), {}),
    ]


class TestCodec:
    @given(text=any_text)
    def test_any_text_comes_back(self, tokenizers: list[Tokenizer], text: str):
        for tokenizer in tokenizers:
            ids = tokenizer.encode_text(text)
            assert tokenizer.decode_text(ids) == text
            assert all(len(tokenizer.spec.control_symbols) <= i < tokenizer.vocab_size for i in ids)

    @pytest.mark.parametrize("text", HARD_TEXTS)
    def test_hard_texts_come_back(self, tokenizers: list[Tokenizer], text: str):
        for tokenizer in tokenizers:
            ids = tokenizer.encode_text(text)
            assert tokenizer.decode_text(ids) == text
            assert all(i >= len(tokenizer.spec.control_symbols) for i in ids)

    def test_a_very_long_line_comes_back(self, tokenizer: Tokenizer):
        line = "x = 'ab' + y1; " * 7000
        assert tokenizer.decode_text(tokenizer.encode_text(line)) == line

    def test_a_lone_surrogate_is_refused_with_its_position(self, tokenizer: Tokenizer):
        with pytest.raises(Unrenderable, match=r"U\+D800 at character 2 of 'ab\\ud800'") as refusal:
            tokenizer.encode_text("first\nab\ud800c")
        assert refusal.value.reason == "lone surrogate"
        session = Session(("x",), (ShownState("return", 1, 0, None, "'\udfff'"),), (), False)
        with pytest.raises(Unrenderable, match=r"U\+DFFF at character 1"):
            tokenizer.encode_session(session)

    @given(session=sessions())
    def test_sessions_come_back_from_ids(self, tokenizers: list[Tokenizer], session: Session):
        for tokenizer in tokenizers:
            segments = render(session, tokenizer.spec)
            ids, roles = tokenizer.encode(segments)
            assert len(ids) == len(roles)
            assert tokenizer.segments(ids) == segments
            assert parse(tokenizer.segments(ids), tokenizer.spec).session == session
            context = tokenizer.encode_context(session.context)
            for encoded in (tokenizer.encode_session(session), tokenizer.encode_session(session, context)):
                assert (encoded.ids, encoded.roles, encoded.length) == (ids, roles, len(ids))
                assert encoded.steps == len(session.actions)
                assert sum(encoded.runs) == len(ids)

    @given(session=sessions(), data=st.data())
    def test_a_cut_session_ends_after_the_last_state_that_fits(
        self, tokenizer: Tokenizer, session: Session, data: st.DataObject
    ):
        whole = tokenizer.encode_session(session)
        room = data.draw(st.integers(0, whole.length + 1))
        ids = whole.cut(room).ids
        assert ids == whole.ids[: len(ids)]
        ends = [k + 1 for k, i in enumerate(whole.ids) if i == tokenizer.symbol_id(STATE_END)]
        assert len(ids) == (
            whole.length if room >= whole.length else max([0, *(e for e in ends if e <= room)])
        )
        assert sum(whole.cut(room).runs if ids else []) == len(ids)

    @given(session=sessions(), data=st.data())
    def test_encoding_into_a_room_is_encoding_and_cutting(
        self, tokenizer: Tokenizer, session: Session, data: st.DataObject
    ):
        whole = tokenizer.encode_session(session)
        room = data.draw(st.integers(0, whole.length + 1))
        new = pickle.loads(pickle.dumps(tokenizer))  # it has seen no line yet
        for _ in range(2):
            assert new.encode_session(session, room=room) == whole.cut(room)

    def test_what_lies_behind_the_room_is_not_written(self, tokenizer: Tokenizer):
        states = tuple(ShownState("line", line, 0, {}, None) for line in (1, 1, 1, 1, 9))
        session = Session(("x",), states, (Action(STEP_INTO),) * 4, False)
        with pytest.raises(Unrenderable):
            tokenizer.encode_session(session)
        two = tokenizer.encode_session(session._replace(states=states[:2], actions=session.actions[:1]))
        assert tokenizer.encode_session(session, room=two.length) == two

    @given(session=sessions())
    def test_one_call_for_all_texts_changes_nothing(self, tokenizer: Tokenizer, session: Session):
        segments = render(session)
        run, expected = "", []
        for segment in [*segments, Segment("marker", STATE_END, Role.STATE)]:
            if segment.kind in SYMBOL_KINDS:
                expected += [*tokenizer.encode_text(run), tokenizer.symbol_id(segment.text)]
                run = ""
            else:
                run += segment.text
        assert tokenizer.encode(segments)[0] == expected[:-1]

    def test_texts_without_line_ends_are_kept_apart(self, tokenizer: Tokenizer):
        texts = ["a", "", "b\n\nc", "\n", "d"]
        segments = []
        for text in texts:
            segments += [Segment("value", text, Role.STATE), Segment("marker", STATE_END, Role.STATE)]
        ids, _ = tokenizer.encode(segments)
        found = [""]
        for i in ids:
            if i == tokenizer.symbol_id(STATE_END):
                found.append("")
            else:
                found[-1] += tokenizer.decode_text([i])
        assert found[:-1] == texts

    def test_roles_follow_their_segments(self, tokenizer: Tokenizer, traces: list[Trace]):
        tree = StateTree(traces[0])
        segments = render(show(tree, full_walk(tree, STEP_INTO), tokenizer.spec))
        _, roles = tokenizer.encode(segments)
        for role in Role:
            alone, _ = tokenizer.encode([segment for segment in segments if segment.role == role])
            assert roles.count(role) == len(alone)
        assert type(roles[0]) is int

    def test_text_never_forges_a_symbol(self, tokenizer: Tokenizer):
        forged = "".join(ACTIONS.values()) + STATE_END + pointer(1)
        honest = Session(("s = 0",), (ShownState("line", 1, 0, {"s": "0"}, None),), (), True)
        liar = Session((f"s = {forged!r}",), (ShownState("line", 1, 0, {"s": forged}, None),), (), True)
        symbols = range(len(tokenizer.spec.control_symbols))
        found = [
            [i for i in tokenizer.encode_session(session).ids if i in symbols] for session in (honest, liar)
        ]
        assert found[0] == found[1]

    def test_values_are_spelled_if_the_spec_says_so(self, tokenizers: list[Tokenizer]):
        pieces, letters = tokenizers[0], tokenizers[2]
        value = "['result', 12, 'return_x']"
        session = Session(("result = 12",), (ShownState("line", 1, 0, {"result": value}, None),), (), True)
        context, state = map(unpack_ids, letters.encode_session(session).parts)
        name, source = letters.encode_text("result="), letters.encode_text("result = 12\n")
        assert len(name) < len("result=")
        assert context[-len(source) :] == source
        assert state[2 : 2 + len(name)] == name
        spelled = [letters.decode_text([i]) for i in state[2 + len(name) :]]
        assert [text for text in spelled if any(map(str.isalnum, text))] == [c for c in value if c.isalnum()]
        assert pieces.encode_session(session).length < letters.encode_session(session).length

    def test_a_symbol_beyond_the_spec_is_refused(self, tokenizer: Tokenizer):
        with pytest.raises(Unrenderable, match="no such symbol"):
            tokenizer.encode([Segment("pointer", pointer(tokenizer.spec.lines + 1), Role.STATE)])


class TestGarbage:
    @given(ids=st.lists(st.integers(-3, 500), max_size=60))
    def test_parse_never_raises_on_ids(self, tokenizer: Tokenizer, ids: list[int]):
        parse(tokenizer.segments(ids))

    @given(session=sessions(), data=st.data())
    def test_nor_on_nearly_right_ones(self, tokenizer: Tokenizer, session: Session, data: st.DataObject):
        ids = tokenizer.encode_session(session).ids
        for _ in range(3):
            ids[data.draw(st.integers(0, len(ids) - 1))] = data.draw(st.integers(0, 500))
        parsed = parse(tokenizer.segments(ids))
        assert parse(render(parsed.session)).session.states == parsed.session.states

    def test_what_no_document_holds_is_marked(self, tokenizer: Tokenizer):
        half = tokenizer.encode_text("\u2581")[:2]
        kinds = [s.kind for s in tokenizer.segments([tokenizer.pad, 3, -1, tokenizer.vocab_size, *half])]
        assert kinds == ["invalid"] * 5


class TestPieces:
    def test_digits_are_single_and_lines_are_never_crossed(self, tokenizers: list[Tokenizer]):
        for tokenizer in tokenizers:
            for i in range(len(tokenizer.spec.control_symbols), tokenizer.vocab_size):
                try:
                    piece = tokenizer.decode_text([i])
                except UnicodeDecodeError:
                    continue
                assert len(piece) == 1 or not any(c.isdigit() or c in "\n\t" for c in piece)

    def test_a_name_is_the_same_pieces_wherever_it_stands(self, tokenizer: Tokenizer):
        name = tokenizer.encode_text("result")
        for before, after in [("    ", " = 1"), ("x = ", ""), ("f(", ")"), ("", "=1"), ("return ", "[0]")]:
            ids = tokenizer.encode_text(before + "result" + after)
            start = len(tokenizer.encode_text(before))
            assert ids[start : start + len(name)] == name

    def test_spaces_join_the_signs_beside_them(self, tokenizer: Tokenizer):
        assert len(tokenizer.encode_text(" = ")) == 1
        assert len(tokenizer.encode_text("    ")) == 1


class TestTraining:
    def test_the_same_texts_give_the_same_tokenizer(self, tokenizer: Tokenizer, texts: list[str]):
        assert train(texts, tokenizer.spec, {}, threads=1).fingerprint == tokenizer.fingerprint
        assert train(iter(texts), tokenizer.spec, {}, threads=4).fingerprint == tokenizer.fingerprint
        assert train(texts[::-1], tokenizer.spec, {}).fingerprint == tokenizer.fingerprint
        assert train(texts[::2], tokenizer.spec, {}).fingerprint != tokenizer.fingerprint

    def test_renumbering_moves_every_line_and_nothing_else(self, tokenizer: Tokenizer, traces: list[Trace]):
        tree = StateTree(traces[0])
        plain = tokenizer.encode_session(show(tree, full_walk(tree, STEP_INTO), tokenizer.spec))
        moved = tokenizer.renumber(plain, 3)
        for before, after in zip(tokenizer.segments(plain.ids), tokenizer.segments(moved.ids), strict=True):
            line = number_of(before.text, "line") if before.kind == "pointer" else None
            assert after == (before if line is None else before._replace(text=pointer(line + 3)))
        assert tokenizer.renumber(moved, -3) == plain

    def test_the_spec_is_part_of_the_fingerprint(self, tokenizer: Tokenizer, texts: list[str]):
        other = replace(tokenizer.spec, max_piece_length=15)
        assert train(texts, other, {}).fingerprint != tokenizer.fingerprint

    def test_too_many_pieces_name_the_most_there_can_be(self, texts: list[str]):
        spec = TokenizerSpec(vocab_size=9000, lines=20, frames=4)
        with pytest.raises(UserError, match="no more than") as error:
            train(texts, spec, {})
        most = int(str(error.value).split("no more than ")[1].split()[0])
        assert train(texts, replace(spec, vocab_size=most), {}).vocab_size == most

    @pytest.mark.parametrize("texts", [[], ["a"]])
    def test_too_little_room_or_text(self, texts: list[str]):
        with pytest.raises(UserError, match="300 pieces"):
            train(texts, TokenizerSpec(vocab_size=300), {})

    def test_texts_are_those_of_one_session_per_trace(self, traces: list[Trace], tokenizer: Tokenizer):
        policy = PolicyConfig()
        texts = list(training_texts(traces, tokenizer.spec, policy, 3, 20))
        assert texts == list(training_texts(iter(traces), tokenizer.spec, policy, 3, 20))
        assert texts != list(training_texts(traces, tokenizer.spec, policy, 4, 20))
        assert "def f(a):" in texts
        assert not any("\n" in text or "<|" in text for text in texts)


class TestFiles:
    def test_saved_is_loaded(self, tokenizer: Tokenizer, tmp_path: Path):
        tokenizer.save(tmp_path / "new" / "folder")
        loaded = Tokenizer.load(tmp_path / "new" / "folder")
        assert (loaded.spec, loaded.fingerprint) == (tokenizer.spec, tokenizer.fingerprint)
        assert loaded.trained["for"] == "tests"
        assert loaded.encode_text("def f(x):") == tokenizer.encode_text("def f(x):")

    def test_it_can_be_sent_to_another_process(self, tokenizer: Tokenizer):
        assert pickle.loads(pickle.dumps(tokenizer)).fingerprint == tokenizer.fingerprint

    @pytest.mark.parametrize("missing", [MODEL_FILE, SPEC_FILE])
    def test_a_missing_file(self, tokenizer: Tokenizer, tmp_path: Path, missing: str):
        tokenizer.save(tmp_path)
        (tmp_path / missing).unlink()
        with pytest.raises(UserError, match=missing):
            Tokenizer.load(tmp_path)

    @pytest.mark.parametrize("damage", [b"", b"nonsense" * 50])
    def test_a_damaged_model(self, tokenizer: Tokenizer, tmp_path: Path, damage: bytes):
        tokenizer.save(tmp_path)
        (tmp_path / MODEL_FILE).write_bytes(damage)
        with pytest.raises(UserError, match="tokenizer"):
            Tokenizer.load(tmp_path)

    def test_a_cut_model(self, tokenizer: Tokenizer, tmp_path: Path):
        tokenizer.save(tmp_path)
        model = (tmp_path / MODEL_FILE).read_bytes()
        for size in (1, 100, len(model) // 2, len(model) - 1):
            (tmp_path / MODEL_FILE).write_bytes(model[:size])
            with pytest.raises(UserError, match="tokenizer"):
                Tokenizer.load(tmp_path)

    @pytest.mark.parametrize(
        "spec", ["", "[]", "{}", '{"spec": {"vocab": 1}, "fingerprint": "", "trained": {}}']
    )
    def test_a_damaged_spec(self, tokenizer: Tokenizer, tmp_path: Path, spec: str):
        tokenizer.save(tmp_path)
        (tmp_path / SPEC_FILE).write_text(spec)
        with pytest.raises(UserError, match="damaged"):
            Tokenizer.load(tmp_path)

    def test_files_of_two_tokenizers(self, tokenizer: Tokenizer, texts: list[str], tmp_path: Path):
        tokenizer.save(tmp_path)
        train(texts[::2], tokenizer.spec, {}).save(tmp_path / "other")
        (tmp_path / MODEL_FILE).write_bytes((tmp_path / "other" / MODEL_FILE).read_bytes())
        with pytest.raises(UserError, match="fingerprint"):
            Tokenizer.load(tmp_path)

    def test_a_spec_that_does_not_fit(self, tokenizer: Tokenizer, tmp_path: Path):
        tokenizer.save(tmp_path)
        record = json.loads((tmp_path / SPEC_FILE).read_text())
        record["spec"]["lines"] += 1
        (tmp_path / SPEC_FILE).write_text(json.dumps(record))
        with pytest.raises(UserError, match="do not fit its spec"):
            Tokenizer.load(tmp_path)


class TestFigures:
    def test_every_trace_comes_back(
        self, tokenizer: Tokenizer, traces: list[Trace], found_traces: list[Trace]
    ):
        figures = evaluate(tokenizer, [*traces, *found_traces])
        assert figures.roundtrip_failures == 0
        assert figures.traces + sum(figures.refused.values()) == len(traces) + len(found_traces)
        assert set(figures.refused) <= {"too many lines"}
        assert 0 < figures.tokens_mean < figures.tokens_p95

    def test_tokens_are_counted_over_traces_of_at_most_so_many_events(
        self, tokenizer: Tokenizer, traces: list[Trace]
    ):
        short = [trace for trace in traces if len(trace.events) <= 10]
        counts = []
        for tree in map(StateTree, short):
            counts.append(
                len(tokenizer.encode_session(show(tree, full_walk(tree, STEP_INTO), tokenizer.spec)).ids)
            )
        figures = evaluate(tokenizer, traces, max_events=10)
        assert 3 < figures.traces == len(short) < len(traces)
        assert figures.tokens_mean == pytest.approx(sum(counts) / len(counts))
        assert figures.tokens_p95 == sorted(counts)[-(-95 * len(counts) // 100) - 1]

    def test_a_trace_that_does_not_come_back_is_counted(
        self, tokenizer: Tokenizer, traces: list[Trace], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(Tokenizer, "decode_text", lambda self, ids: "x\n")
        assert evaluate(tokenizer, traces[:5]).roundtrip_failures == 5

    def test_nothing_to_measure(self, tokenizer: Tokenizer):
        assert evaluate(tokenizer, []).traces == 0


def test_sampled_sessions_come_back_from_ids(
    tokenizer: Tokenizer, traces: list[Trace], found_traces: list[Trace]
):
    rng = random.Random(1)
    for trace in traces * 3 + found_traces:
        tree = StateTree(trace)
        if len(tree.lines) > tokenizer.spec.lines:
            continue
        session = show(tree, sample_trajectory(tree, rng, PolicyConfig(), 40), tokenizer.spec)
        assert parse(tokenizer.segments(tokenizer.encode_session(session).ids)).session == session
