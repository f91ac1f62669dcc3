"""A session as ids, in the parts that a row may end between."""

from array import array
from collections.abc import Iterable
from itertools import accumulate, chain, repeat
from typing import NamedTuple

from nd_jax.language.symbols import Role

ID_BYTES = array("i").itemsize
"""Size of a packed id. Ids stay packed until a row is laid out: joining bytes is the fastest way to gather
many short texts."""


def pack_ids(ids: Iterable[int]) -> bytes:
    """Pack ids as machine integers of 32 bits, one after the other."""
    return array("i", ids).tobytes()


def unpack_ids(packed: bytes) -> list[int]:
    """Give packed ids as a list."""
    return array("i", packed).tolist()


class EncodedSession(NamedTuple):
    """A session as packed ids.

    Attributes:
      parts: the program, the start state, then an action and the state it leads to in turn.
      end: END, where the session reached the end of its trace; else nothing.
    """

    parts: list[bytes]
    end: bytes

    @property
    def steps(self) -> int:
        """How many actions it holds, each with the state it leads to."""
        return max(0, len(self.parts) - 2) // 2

    @property
    def length(self) -> int:
        """How many tokens it takes."""
        return (sum(map(len, self.parts)) + len(self.end)) // ID_BYTES

    @property
    def ids(self) -> list[int]:
        """Its ids in order."""
        return unpack_ids(b"".join(self.parts) + self.end)

    @property
    def roles(self) -> list[Role]:
        """What each id is for."""
        order = [Role.CONTEXT, *(Role.STATE, Role.ACTION) * (self.steps + 1)]
        lengths = [len(part) // ID_BYTES for part in [*self.parts, self.end]]
        order[len(self.parts) :] = [Role.STATE]
        return list(chain.from_iterable(map(repeat, order, lengths)))

    @property
    def runs(self) -> list[int]:
        """Tokens of what is given, program and start state; then of each action and each state in turn."""
        lengths = [len(part) // ID_BYTES for part in self.parts]
        lengths[-1] += len(self.end) // ID_BYTES
        return [lengths[0] + lengths[1], *lengths[2:]]

    def cut(self, room: int) -> "EncodedSession":
        """Cut to `room` tokens after the last state that fits; nothing is left where none does."""
        if self.length <= room:
            return self
        fitting = sum(end <= room * ID_BYTES for end in accumulate(map(len, self.parts)))
        return EncodedSession(self.parts[: fitting - fitting % 2], b"")
