"""The state tree: a trace's states, nested by frame.

A *frame node* is one segment of execution from a call (or a generator's resume) to the return, yield or
unwind that ends it; a generator's resumes are nodes of their own although they share one activation. A node's
*own* states are those at which its function itself is stopped, without the states of the functions it calls.

The tree is kept as flat lists of ints, so that building it takes about a microsecond per event.
"""

from bisect import bisect_left, bisect_right
from functools import cached_property

from nd_jax.debugger.source import code_lines, source_lines
from nd_jax.tracing.schema import CLOSING, LINE, OPENING, Event, Trace


class StateTree:
    """States of one trace, indexed 0 .. last in the order of execution.

    Attributes:
      trace: the trace itself; ``events`` are its events.
      last: index of the last state, which closes the root frame. State 0 opens it.
      node: state -> number of its frame node; nodes are numbered by their first state.
      opens: node -> its first state.
      closes: node -> its last state.
      callers: node -> the own state of the parent that made the call; -1 for the root.
      next_own: state -> next own state of the same node; -1 at the node's last state.
      previous_own: state -> previous own state of the same node; -1 at the node's first state.
    """

    def __init__(self, trace: Trace):
        """Nest a trace's states.

        Raises:
          ValueError: the events do not nest into exactly one root frame.
        """
        events = trace.events
        count = len(events)
        self.trace = trace
        self.events: list[Event] = events
        self.last = count - 1
        self.node = node = [0] * count
        self.opens: list[int] = []
        self.closes: list[int] = []
        self.callers: list[int] = []
        self.next_own = next_own = [-1] * count
        self.previous_own = previous_own = [-1] * count
        opens, closes, callers = self.opens, self.closes, self.callers

        enclosing: list[
            tuple[int, int]
        ] = []  # of each open node but the innermost: its number, latest own state
        current = latest = -1  # the innermost open node, its latest own state
        for i, event in enumerate(events):
            kind = event[0]
            if current < 0 and (i or kind not in OPENING):
                raise ValueError(f"event {i} ({kind}) lies outside the root frame")
            if kind in OPENING:
                enclosing.append((current, latest))
                callers.append(latest)
                current, latest = len(opens), i
                opens.append(i)
                closes.append(-1)
                node[i] = current
            else:
                node[i] = current
                previous_own[i] = latest
                next_own[latest] = i
                latest = i
                if kind in CLOSING:
                    closes[current] = i
                    current, latest = enclosing.pop()
        if current >= 0 or not count:
            raise ValueError("the root frame never returns")

    def __len__(self) -> int:
        return len(self.events)

    def parent(self, node: int) -> int | None:
        """The frame node that called a node; None for the root."""
        caller = self.callers[node]
        return None if caller < 0 else self.node[caller]

    def stack(self, i: int) -> list[int]:
        """States that a debugger's stack shows at state i, outermost first: each caller's, then i itself."""
        states = [i]
        while (caller := self.callers[self.node[states[-1]]]) >= 0:
            states.append(caller)
        return states[::-1]

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The source's lines."""
        return tuple(source_lines(self.trace.source))

    @cached_property
    def visits(self) -> dict[int, list[int]]:
        """Line number -> the states that stop before that line runs, ascending: where a breakpoint fires."""
        visits: dict[int, list[int]] = {}
        for i, event in enumerate(self.events):
            if event[0] == LINE:
                visits.setdefault(event[1], []).append(i)
        return visits

    @cached_property
    def unvisited(self) -> list[int]:
        """Lines holding code that no line state of this trace stops at."""
        return [line for line in code_lines(self.lines) if line not in self.visits]

    def next_visit(self, i: int, lines: tuple[int, ...]) -> int | None:
        """First state after i that stops at one of the lines, in any frame."""
        hits = [states[k] for states in self._visited(lines) if (k := bisect_right(states, i)) < len(states)]
        return min(hits, default=None)

    def previous_visit(self, i: int, lines: tuple[int, ...]) -> int | None:
        """Last state before i that stops at one of the lines, in any frame."""
        hits = [states[k - 1] for states in self._visited(lines) if (k := bisect_left(states, i)) > 0]
        return max(hits, default=None)

    def _visited(self, lines: tuple[int, ...]) -> list[list[int]]:
        return [self.visits[line] for line in lines if line in self.visits]
