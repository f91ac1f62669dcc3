"""Python's constructs, each with the events of its run: ``C1 L2 >C3 >R3=0 R2=0`` (`compact`)."""

import sys

# name -> source, arguments, events
CONSTRUCTS = {
    "decorator": (
        "def deco(g):\n    return g\ndef f():\n    @deco\n    def h():\n        return 1\n    return h()",
        "",
        "C3 L4 L5 L4 >C1 >L2 >R2=<function h> L5 L7 >C4 >L6 >R6=1 R7=1",
    ),
    "class body": (
        "def f():\n    class A:\n        x = 1\n        def g(self):\n            return self.x\n"
        "    return A().g()",
        "",
        "C1 L2 >C2 >L2 >L3 >L4 >R4=None L6 >C4 >L5 >R5=1 R6=1",
    ),
    "finally while unwinding": (
        "def g():\n    try:\n        1 / 0\n    finally:\n        x = 1\ndef f():\n    try:\n"
        "        g()\n    except ZeroDivisionError:\n        return 2",
        "",
        "C6 L7 L8 >C1 >L2 >L3 >X3:ZeroDivisionError >L5 >R5~unwind X8:ZeroDivisionError L9 L10 R10=2",
    ),
    "raise again": (
        "def f():\n    try:\n        try:\n            [][0]\n        except IndexError:\n"
        "            raise\n    except IndexError as e:\n        return 1",
        "",
        "C1 L2 L3 L4 X4:IndexError L5 L6 L7 L8 R8=1",
    ),
    "with and an exception": (
        "class C:\n    def __enter__(self):\n        return 5\n    def __exit__(self, *e):\n"
        "        return True\ndef f():\n    with C() as c:\n        1 / 0\n    return c",
        "",
        "C6 L7 >C2 >L3 >R3=5 L8 X8:ZeroDivisionError L7 >C4 >L5 >R5=True L9 R9=5",
    ),
    "same-line loop": (
        "def f():\n    t = 0\n    for i in (1, 2): t += i\n    return t",
        "",
        "C1 L2 L3 L3 L3 L4 R4=3",
    ),
    "dict and set comprehensions": (
        "def f(a):\n    b = {x: x for x in a}\n    return {x for x in b}",
        "[1]",
        "C1 L2 >C2 >L2 >L2 >R2={1: 1} L3 >C3 >L3 >L3 >R3={1} R3={1}",
    ),
    "multi-line statement": (
        "def g(x):\n    return x\ndef f():\n    a = [\n        g(1),\n        2,\n    ]\n    return a",
        "",
        "C3 L5 >C1 >L2 >R2=1 L6 L4 L8 R8=[1, 2]",
    ),
    "async for": (
        "class A:\n    n = 0\n    def __aiter__(self):\n        return self\n"
        "    async def __anext__(self):\n        self.n += 1\n        if self.n > 1:\n"
        "            raise StopAsyncIteration\n        return self.n\nasync def g():\n"
        "    async for x in A():\n        y = x\n    return y\ndef f():\n    try:\n"
        "        g().send(None)\n    except StopIteration as e:\n        return e.value",
        "",
        "C14 L15 L16 >C10 >L11 >>C3 >>L4 >>R4=A() >>C5 >>L6 >>L7 >>L9 >>R9=1 >L12 >L11 >>C5 >>L6 "
        ">>L7 >>L8 >>X8:StopAsyncIteration >>R8~unwind >X11:StopAsyncIteration >L13 >R13=1 "
        "X16:StopIteration L17 L18 R18=1",
    ),
    "async generator": (
        "async def h():\n    yield 1\nasync def g():\n    return [x async for x in h()]\ndef f():\n"
        "    try:\n        g().send(None)\n    except StopIteration as e:\n        return e.value",
        "",
        "C5 L6 L7 >C3 >L4 >>C4 >>L4 >>>C1 >>>L2 >>>R2^1 >>L4 >>>C2 >>>R2=None "
        ">>X4:StopAsyncIteration >>R4=[1] >R4=[1] X7:StopIteration L8 L9 R9=[1]",
    ),
    "generator closed": (
        "def g():\n    try:\n        yield 1\n    finally:\n        x = 1\ndef f():\n    a = g()\n"
        "    next(a)\n    a.close()\n    return 2",
        "",
        "C6 L7 L8 >C1 >L2 >L3 >R3^1 L9 >C3 >X3:GeneratorExit >L5 >R5~unwind L10 R10=2",
    ),
    "recursion": (
        "def f(n):\n    return n and n + f(n - 1)",
        "2",
        "C1 L2 >C1 >L2 >>C1 >>L2 >>R2=0 >R2=1 R2=3",
    ),
    "closure": (
        "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    g()\n    return n",
        "",
        "C1 L2 L3 L6 >C3 >L5 >R5=None L7 R7=1",
    ),
    "except star": (
        "def f():\n    try:\n        raise ExceptionGroup('g', [ValueError(1)])\n"
        "    except* ValueError:\n        return_ = 1\n    return return_",
        "",
        "C1 L2 L3 X3:ExceptionGroup L4 L5 L6 R6=1",
    ),
    "match": (
        "def f(x):\n    match x:\n        case [a, b]:\n            return a\n"
        "        case {'k': v}:\n            return v",
        "{'k': 7}",
        "C1 L2 L3 L5 L6 R6=7",
    ),
}
# Since 3.12 a comprehension has no frame of its own.
INLINED = {
    "dict and set comprehensions": "C1 L2 L2 L3 L3 R3={1}",
    "async generator": "C5 L6 L7 >C3 >L4 >>C1 >>L2 >>R2^1 >L4 >>C2 >>R2=None >X4:StopAsyncIteration >R4=[1] "
    "X7:StopIteration L8 L9 R9=[1]",
}


def expected(name: str, version: tuple[int, ...] = sys.version_info) -> str:
    """The events of a construct under an interpreter."""
    return INLINED[name] if version >= (3, 12) and name in INLINED else CONSTRUCTS[name][2]
