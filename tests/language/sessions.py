"""Sessions made by hypothesis: anything the language can write, whether or not a program could do it."""

from hypothesis import strategies as st

from nd_jax.debugger.actions import FORWARD, INVERSE, WITH_LINES, Action
from nd_jax.language.session import Session, ShownState
from nd_jax.language.symbols import ACTIONS, ARG, END, EVENTS, SHOWS_LOCALS, SHOWS_VALUE, STATE_END, pointer
from nd_jax.tracing.schema import EVENT_KINDS, RETURN

# Any text that UTF-8 holds, with what is likely to go wrong drawn often.
symbols = [*EVENTS.values(), *ACTIONS.values(), ARG, END, STATE_END, pointer(1), "<0x41>", "<unk>", "<s>"]
signs = [
    "\u2581",
    "\u2423",
    "\0",
    "\t",
    "'",
    "=",
    "e\u0301",
    "\u202e",
    "\u2028",
    "\x85",
    "\U0001f600",
    "\uff10",
]
troubles = st.sampled_from([*symbols, *signs, " ", "  "])
characters = st.characters(exclude_categories=["Cs"])
any_text = st.lists(troubles | st.text(characters, max_size=5), max_size=5).map("".join)
one_line = any_text.map(lambda text: text.replace("\n", " ").replace("\r", " "))
names = st.sampled_from(["x", "y", "total", "_", "été", "变量", "x1", "__a", "résultat_2"])
bindings = st.dictionaries(names, one_line, max_size=5)


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    """A session of up to eight states in up to five frames."""
    context = tuple(draw(st.lists(one_line, min_size=1, max_size=6)))
    line = st.integers(1, len(context))
    states: list[ShownState] = []
    frames = 1
    for k in range(draw(st.integers(1, 8))):
        event = draw(st.sampled_from(EVENT_KINDS))
        frame = draw(st.integers(0, min(frames, 4))) if k else 0
        frames = max(frames, frame + 1)
        hidden = k == 0 and event == RETURN and draw(st.booleans())
        states.append(
            ShownState(
                event,
                None if hidden else draw(line),
                frame,
                draw(bindings) if event in SHOWS_LOCALS else None,
                draw(one_line) if event in SHOWS_VALUE else None,
            )
        )
    actions = []
    for _ in states[1:]:
        name = draw(st.sampled_from(FORWARD + INVERSE))
        lines = draw(st.lists(line, min_size=1, max_size=3, unique=True)) if name in WITH_LINES else []
        actions.append(Action(name, tuple(lines)))
    return Session(context, tuple(states), tuple(actions), draw(st.booleans()))
