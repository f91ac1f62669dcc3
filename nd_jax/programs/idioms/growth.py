"""How a loop's accumulator grows, round by round."""

from nd_jax.programs.idioms.conversions import convert, expression
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import number, of_two
from nd_jax.programs.idioms.values import (
    ATOM,
    DICT,
    INT,
    INTS,
    LARGEST,
    LONGEST,
    PRODUCT,
    STR,
    SUM,
    WORDS,
    Value,
)
from nd_jax.programs.idioms.walks import Walk


class Growth:
    """Updates of one accumulator inside a loop, and the bounds that follow."""

    def __init__(self, d: Draft, walk: Walk, name: str, kind: str, start: int) -> None:
        """Begin with the accumulator's first value."""
        self.d, self.walk, self.name, self.kind, self.start = d, walk, name, kind, start
        self.steps: list[Value] = []
        self.replaced: list[Value] = []

    def value(self) -> Value:
        """What is known after the loop, however many rounds it ran."""
        rounds = self.walk.hi
        lo = min([0, *(step.lo for step in self.steps)]) * (rounds if self.kind == INT else 0)
        hi = max([0, *(step.hi for step in self.steps)]) * rounds
        items = [step for step in self.steps if step.item_hi or step.item_lo] or [Value("", self.kind)]
        item_lo, item_hi = min(i.item_lo for i in items), max(i.item_hi for i in items)
        flavours = {step.part_flavour for step in self.steps}
        lo = min([lo + self.start, *(r.lo for r in self.replaced)])
        hi = max([hi + self.start, *(r.hi for r in self.replaced)])
        if self.kind == DICT:
            hi = min(hi, rounds)
        return Value(
            self.name, self.kind, lo, hi, item_lo, item_hi, flavours.pop() if len(flavours) == 1 else "any"
        )

    def update(self, v: Value) -> None:
        """Write one update with an item."""
        {INT: self._int, STR: self._str, INTS: self._ints, WORDS: self._words, DICT: self._dict}[self.kind](v)

    def _other(self, v: Value) -> Value | None:
        """Another of the walk's values that nobody has read yet."""
        for other in self.walk.items:
            if other.text in self.d.unread and other.text != v.text:
                return other
        return None

    def _int(self, v: Value) -> None:
        d, name = self.d, self.name
        other = self._other(v)
        if (
            v.type != INT
            and v in self.walk.items
            and other is not None
            and other.type == INT
            and d.dice.chance(0.7)
        ):
            v, other = other, None
        if v.type == INT:
            made = v
            if other is not None and other.type == INT and d.dice.chance(0.7):
                made = of_two(d, v, other)
            elif d.module.helpers_left or d.dice.chance(0.35):
                made = convert(d, v, INT)
        else:
            untouched = any(item.text in d.unread for item in (v, *self.walk.items))
            made = convert(d, v, INT) if untouched or d.dice.chance(0.3) else number("1", 1, 1)
            if made.text == "1" and d.dice.chance(0.2):
                made = number(*d.dice.pick((("2", 2, 2), ("3", 3, 3))))
        if max(abs(made.lo), abs(made.hi)) * self.walk.hi > LARGEST:
            made = number(f"{made.grouped} % 10", 0, 9, rank=PRODUCT)
        if made.type == INT and made.hi > 3 and made.rank == ATOM and d.dice.chance(0.12) and not self.steps:
            method = "min" if made.lo < 0 and d.dice.chance(0.6) else "max"
            self.replaced.append(made)
            d.line(f"{name} = {method}({name}, {made.text})")
            return
        if d.dice.chance(0.12):
            d.line(f"{name} -= {made.text}")
            self.steps.append(number("", -made.hi, -made.lo))
            return
        if self.start == 1 and made.lo >= 1 and made.hi**self.walk.hi <= LARGEST:
            d.line(f"{name} *= {made.text}")
            self.replaced.append(number("", 1, made.hi**self.walk.hi))
            return
        d.line(f"{name} += {made.text}" if d.dice.chance(0.93) else f"{name} = {name} + {made.term}")
        self.steps.append(number("", made.lo, made.hi))

    def _str(self, v: Value) -> None:
        d, name = self.d, self.name
        other = self._other(v)
        if v.type == INT:
            made = (
                expression(d, v, STR)
                if d.dice.chance(0.3)
                else Value(f"str({v.text})", STR, 1, 2, flavour="digits" if v.lo >= 0 else "numeric")
            )
        else:
            bare = len(d.indent) > 8 and d.dice.chance(0.5)  # a plain loop that only copies is none
            made = v if bare and not d.module.helpers_left else convert(d, v, STR)
        if made.hi * self.walk.hi > LONGEST + 2:
            made = Value(f"{made.grouped}[{'0' if made.lo else ':1'}]", STR, 1, 1, flavour=made.flavour)
        if other is not None and other.type == INT and made.hi * self.walk.hi <= 8 and d.dice.chance(0.6):
            made = Value(f"{made.term} + str({other.text})", STR, 2, made.hi + 1, flavour="any", rank=SUM)
        if d.dice.chance(0.2):
            d.line(f"{name} = {made.term} + {name}")
        else:
            d.line(f"{name} += {made.text}")
        self.steps.append(made._replace(item_lo=0, item_hi=0))

    def _append(self, text: str) -> None:
        d, name = self.d, self.name
        match d.dice.between(0, 11):
            case 0:
                d.line(f"{name}.insert(0, {text})")
            case 1:
                d.line(f"{name} += [{text}]")
            case 2:
                d.line(f"{name} = [{text}] + {name}")
            case _:
                d.line(f"{name}.append({text})")

    def _ints(self, v: Value) -> None:
        d = self.d
        other = self._other(v)
        made = v
        if other is not None and other.type == INT and d.dice.chance(0.7):
            made = of_two(d, v, other)
        elif d.module.helpers_left or d.dice.chance(0.6):
            made = convert(d, v, INT)
        self._append(made.text)
        self.steps.append(Value("", INTS, 1, 1, made.lo, made.hi))

    def _words(self, v: Value) -> None:
        d = self.d
        made = v if d.dice.chance(0.35) and not d.module.helpers_left else convert(d, v, STR)
        other = self._other(v)
        if other is not None and other.type == INT and d.dice.chance(0.5) and made.hi <= 4:
            made = Value(f"{made.term} + str({other.text})", STR, made.lo + 1, made.hi + 1, flavour="any")
        self._append(made.text)
        self.steps.append(Value("", WORDS, 1, 1, made.lo, made.hi, made.flavour))

    def _dict(self, v: Value) -> None:
        d, name = self.d, self.name
        other = self._other(v)
        key = v.text
        if v.type == STR and v.lo >= 1 and d.dice.chance(0.4):
            key = f"{v.text}[0]"
        if other is not None and other.type == INT:
            made = convert(d, other, INT) if d.dice.chance(0.4) else other
            d.line(f"{name}[{key}] = {made.text}")
            self.steps.append(Value("", DICT, 1, 1, made.lo, made.hi, "any"))
            return
        match d.dice.between(0, 4):
            case 0 if v.type == STR:
                made = expression(d, v, INT)
                d.line(f"{name}[{key}] = {made.text}")
                self.steps.append(Value("", DICT, 1, 1, made.lo, made.hi, "any"))
                return
            case 1 if d.module.branches:
                with d.block(f"if {key} not in {name}:"):
                    d.line(f"{name}[{key}] = {d.dice.pick((0, 0, 1))}")
                d.line(f"{name}[{key}] += 1")
            case _:
                step = d.dice.pick((1, 1, 1, 2))
                d.line(f"{name}[{key}] = {name}.get({key}, 0) + {step}")
        self.steps.append(Value("", DICT, 1, 1, 1, 2 * self.walk.hi, "any"))
