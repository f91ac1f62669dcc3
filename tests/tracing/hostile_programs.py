"""Programs that do their worst, and what becomes of each: its drop reason, or the result of its trace.

``OUTSIDE`` in a source stands for a folder that anybody may write to; what a program leaves anywhere is named
``nd_evil``.
"""

TOO_LONG = {"cpu", "timeout"}
DENIED = "PermissionError(1, 'Operation not permitted')"
FORBIDDEN = "PermissionError(13, 'Permission denied')"

# What finds the recorder's own frame from inside a program, and how its results look.
FIND_WORKER = (
    "import json, os, struct, sys\ndef find():\n    frame = sys._getframe()\n"
    "    while 'secret' not in frame.f_locals: frame = frame.f_back\n    return frame.f_locals\n"
    "def send(kind, text):\n    at, payload = find(), kind + text.encode()\n"
    "    os.write(at['writer'], struct.pack('<16sIQ', at['secret'], at['index'], len(payload)) + payload)\n"
)

HOSTILE: dict[str, tuple[str, set[str]]] = {
    "loop": ("def f():\n    while True:\n        pass", {"too many events"}),
    "loop in C": ("def f():\n    return sum(range(10**12))", TOO_LONG),
    "swallows everything": (
        "def f():\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass",
        {"too many events", *TOO_LONG},
    ),
    "loop while loading": ("while True: pass\ndef f(): return 1", TOO_LONG),
    "sleep": ("import time\ndef f(): time.sleep(1000)", {"timeout"}),
    "ignores the CPU signal": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\ndef f(): return sum(range(10**12))",
        TOO_LONG,
    ),
    "memory": ("def f():\n    x = [0] * 10**10\n    return 1", {"memory"}),
    "memory, piecewise": (
        "def f():\n    x = 'a' * 10**7\n    y = [x + str(i) for i in range(100)]\n    return 1",
        {"memory"},
    ),
    "huge int": ("def f():\n    x = 10**100000\n    return 1", {"1"}),
    "huge result": ("def f():\n    return 10**100000", {"result cut"}),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10**7)\ndef f(n=0): return f(n + 1)", {"too deep"}),
    "exit": ("import os\ndef f():\n    os._exit(0)", {"exit"}),
    "sys.exit": ("import sys\ndef f():\n    sys.exit(3)", {"SystemExit(3)"}),
    "kills itself": ("import os\ndef f():\n    os.kill(os.getpid(), 9)", {"killed"}),
    "crash": ("import ctypes\ndef f():\n    return ctypes.string_at(0)", {"crashed"}),
    "stdout flood": ("def f():\n    for i in range(100):\n        print('x' * 10**6)\n    return 1", {"1"}),
    "writes to every descriptor": (
        "import os\ndef f():\n    for i in range(3, 64):\n        try: os.write(i, b'x' * 99999)\n"
        "        except OSError: pass\n    return 1",
        {"forged result"},
    ),
    "settrace": ("import sys\ndef f():\n    sys.settrace(None)\n    return 1", {"tracer replaced"}),
    "raising repr": (
        "class A:\n    def __repr__(self): raise ValueError\ndef f():\n    a = A()\n    return 1",
        {"1"},
    ),
    "changing repr": (
        "class A:\n    n = 0\n    def __repr__(self):\n        A.n += 1\n        return 'A'\n"
        "def f():\n    a = A()\n    b = 1\n    return A.n",
        {"0"},
    ),
    "thread left running": (
        "import threading\ndef spin():\n    while True: pass\ndef f():\n"
        "    threading.Thread(target=spin).start()",
        {"None"},
    ),
    "patched builtins": (
        "import builtins\nfor name in ('len', 'repr', 'type', 'id', 'isinstance', 'dict', 'Exception'):\n"
        "    setattr(builtins, name, lambda *a: 7)\ndef f(): return len([])",
        {"7"},
    ),
    "patched library": (
        "from collections import Counter\nCounter.most_common, x = (lambda self: 'evil'), 3\n"
        "def f(): return 1",
        {"1"},
    ),
    "modules of modules": ("import typing\ntyping.sys.setrecursionlimit(77)\ndef f(): return 1", {"1"}),
    "no modules": ("import sys\nsys.modules.clear()\ndef f(): return 1", {"1"}),
    "frame walking": (
        "import sys\ndef f():\n    frame = sys._getframe()\n    while frame.f_back: frame = frame.f_back\n"
        "    frame.f_globals['__builtins__'] = {}\n    return 1",
        {"1"},
    ),
    "atexit": ("import atexit, os\ndef f():\n    atexit.register(os._exit, 5)\n    return 1", {"1"}),
    "gc callbacks": (
        "import gc\ndef f():\n    gc.callbacks.append(lambda *a: 1 / 0)\n    gc.collect()\n    return 1",
        {"1"},
    ),
    "random": ("import random\ndef f(): return random.random()", {"nondeterministic"}),
    "random inside": ("import random\ndef f():\n    x = random.random()\n    return 1", {"nondeterministic"}),
    "identity": ("def f(): return id(object())", {"nondeterministic"}),
    "hash order": ("def f(): return list({'a', 'b', 'c', 'd', 'e', 'f'})", {"nondeterministic"}),
    "sees the tracer": (
        "import sys\ndef f(): return sys.gettrace() is None",
        {"nondeterministic"},
    ),
    "NUL": ("def f():\n    return '\0'", {"does not compile"}),
    "lone surrogate": ("def f():\n    return '\ud800'", {"does not compile"}),
    "deep brackets": ("def f():\n    return " + "(" * 1000 + "1" + ")" * 1000, {"does not compile"}),
    "own file": (
        "def f():\n    with open('a.txt', 'w') as file:\n        file.write('hello')\n"
        "    with open('a.txt') as file:\n        return file.read()",
        {"'hello'"},
    ),
    "big file": (
        "def f():\n    with open('a.txt', 'w') as file:\n        file.write('h' * 10**8)",
        {"OSError(27, 'File too large')"},
    ),
    # Results of the program's own making
    "forges a result and goes on": (
        FIND_WORKER + "def f():\n    events = [['call', 1, 0, 0, {}, None], ['return', 2, 0, 0, {}, '42']]\n"
        "    send(b'T', json.dumps(['3.11.7', ['f'], events]))\n    return 1",
        {"forged result"},
    ),
    "forges a drop reason": (
        FIND_WORKER + "def f():\n    send(b'D', json.dumps(['\\ud800[/red]', '']))\n    os._exit(0)",
        {"forged result"},
    ),
    "forges nonsense": (
        FIND_WORKER + "def f():\n    send(b'T', '[' * 100000)\n    os._exit(0)",
        {"forged result"},
    ),
    "clears the recorder's events": (
        "import gc\ndef f():\n    x = 1\n    for o in gc.get_objects():\n"
        "        if type(o) is list and o and type(o[-1]) is tuple and o[-1][:1] == ('line',): o.clear()\n"
        "    return 1",
        {"broken trace", "incomplete", "tracer failed", "1"},
    ),
    "patches the recorder": (
        "import sys\nfor name, module in list(sys.modules.items()):\n"
        "    if name.startswith('nd_jax'): module.render = lambda value: float('nan')\ndef f(): return 1",
        {"tracer failed", "broken trace", "1"},
    ),
    "patches os.write": ("import os\nos.write = lambda *a: 10**9\ndef f(): return 1", {"exit"}),
    "patches json": (
        "import json\njson.dumps = json.JSONEncoder.encode = lambda *a: '[]'\ndef f(): return 1",
        {"1"},
    ),
    "closes every descriptor": ("import os\nos.closerange(0, 1000)\ndef f(): return 1", {"exit"}),
    "closes and opens every descriptor": (
        "import os\nos.closerange(0, 1000)\nfor _ in range(5): os.open('/dev/null', os.O_RDWR)\n"
        "def f(): return 1",
        {"exit"},
    ),
    "swaps the descriptors": (
        "import os\ndef f():\n    for i in range(3): os.dup2(3, i)\n    print('hello', flush=True)\n"
        "    return 1",
        {"forged result"},
    ),
    "stops blocking": (
        "import fcntl, os\nos.set_blocking(3, False)\nfcntl.fcntl(3, 1031, 4096)\n"
        "def f():\n    x = ['y' * 40] * 10\n    for i in range(900): pass\n    return 1",
        {"exit", "1"},
    ),
    # The tracer
    "puts the tracer back": (
        "import sys\ndef f():\n    tracer = sys.gettrace()\n    sys.settrace(None)\n    x = 1\n    x = 2\n"
        "    sys.settrace(tracer)\n    return x",
        {"tracer replaced"},
    ),
    "profiles": ("import sys\ndef f():\n    sys.setprofile(lambda *a: None)\n    return 1", {"1"}),
    "monitors": (
        "import sys\ndef f():\n    if hasattr(sys, 'monitoring'):\n"
        "        sys.monitoring.use_tool_id(1, 'evil')\n"
        "        sys.monitoring.set_events(1, sys.monitoring.events.LINE)\n    return 1",
        {"1"},
    ),
    "traces a thread": (
        "import sys, threading\ndef g(): return 5\ndef f():\n    threading.settrace(sys.gettrace())\n"
        "    t = threading.Thread(target=g)\n    t.start()\n    t.join()\n    return 1",
        {"tracer replaced", "nondeterministic"},
    ),
    "switches threads all the time": ("import sys\nsys.setswitchinterval(1e-9)\ndef f(): return 1", {"1"}),
    "clears frames": (
        "import gc, types\ndef f():\n    for o in gc.get_objects():\n        if type(o) is types.FrameType:\n"
        "            try: o.clear()\n            except RuntimeError: pass\n    return 1",
        {"1", "nondeterministic"},
    ),
    "finaliser": (
        "class A:\n    def __del__(self): self.x = 1\ndef f():\n    a = A()\n    a = 2\n    return a",
        {"2"},
    ),
    "weak reference's callback": (
        "import weakref\nclass A: pass\ndef called(ref): raise ValueError\ndef f():\n    a = A()\n"
        "    ref = weakref.ref(a, called)\n    a = None\n    return 1",
        {"1"},
    ),
    # Values that fight back
    "liars": (
        "class M(type):\n    __hash__ = None\n    def __eq__(c, o): 1 / 0\n    __instancecheck__ = __eq__\n"
        "class A(metaclass=M):\n    @property\n    def __class__(self): 1 / 0\n"
        "    def __getattribute__(self, name): 1 / 0\n"
        "    __len__ = __iter__ = __bool__ = __eq__ = __hash__ = __class__.fget\n"
        "def f():\n    a = A()\n    b, c = [a], (a, a)\n    return 1",
        {"1"},
    ),
    "evil subclasses": (
        "class S(str):\n    def __getitem__(self, i): 1 / 0\n    def __len__(self): return 10**9\n"
        "class D(dict):\n    def items(self): 1 / 0\n    __iter__ = __len__ = items\n"
        "class I(int):\n    def __add__(self, o): 1 / 0\n    __lt__ = __index__ = __add__\n"
        "def f():\n    a, b, c = S('x'), D(x=1), I(5)\n    return [a, b, c]",
        {"[S('x'), D({'x': 1}), I(5)]"},
    ),
    "endless iterators": (
        "import itertools\ndef g():\n    while True: yield 1\ndef f():\n"
        "    a, b = g(), itertools.count()\n    c = zip(a, b)\n    return next(c)",
        {"(1, 0)"},
    ),
    "billion laughs": (
        "def f():\n    a, b = ['lol'] * 10, {}\n    for i in range(60): a, b = [a] * 10, {'l': b, 'r': b}\n"
        "    return len(a)",
        {"10"},
    ),
    "repr calls itself": (
        "class A:\n    def __repr__(self): return repr(self)\ndef f():\n    a = A()\n    return 1",
        {"1"},
    ),
    "names with odd characters": (
        "def f():\n    globals()['a\\0b'] = 1\n    c = type('a\\nb', (), {})()\n"
        "    c.__dict__['\\ud800\\n'] = 2\n    return c",
        {"a\\nb(\\ud800\\n=2)"},
    ),
    "own namespace": (
        "class P(dict):\n    def items(self): 1 / 0\nclass M(type):\n    __prepare__ = lambda *a: P()\n"
        "    def __new__(c, n, b, d): return type.__new__(c, n, b, dict(dict.items(d)))\n"
        "def f():\n    class A(metaclass=M): x = 1\n    return A.x",
        {"1"},
    ),
    # The interpreter
    "replaced __builtins__": ("__builtins__ = {'len': lambda x: 99}\ndef f(): return len([])", {"99"}),
    "no builtins": (
        "import builtins\nbuiltins.__dict__.clear()\ndef f(): return 1",
        {"1", "tracer replaced"},
    ),
    "import hooks": (
        "import builtins, sys\nclass H:\n    def find_spec(self, *a): 1 / 0\nsys.meta_path.insert(0, H())\n"
        "def f():\n    import colorsys",
        {"ZeroDivisionError('division by zero')"},
    ),
    "no streams": (
        "import sys\nsys.stdout.close()\nsys.stdout = sys.stderr = sys.excepthook = None\n"
        "def f():\n    print(1)\n    return 1",
        {"1"},
    ),
    "faulthandler": (
        "import faulthandler, time\nfaulthandler.dump_traceback_later(0.01, exit=True)\n"
        "def f(): time.sleep(1000)",
        {"exit"},
    ),
    "made-up bytecode": (
        "def f():\n    exec(f.__code__.replace(co_code=b'\\x64\\xff' * 10))",
        {"crashed", "killed"},
    ),
    "stack of a thread": (
        "import sys, threading\nthreading.stack_size(2**15)\nsys.setrecursionlimit(10**6)\n"
        "def g(n): return [*map(g, [n])]\ndef f():\n    t = threading.Thread(target=g, args=(0,))\n"
        "    t.start()\n    t.join()",
        {"crashed", "memory", "None", "nondeterministic", *TOO_LONG},
    ),
    "catastrophic pattern": ("import re\ndef f(): return re.match('(a+)+$', 'a' * 64 + 'b')", TOO_LONG),
    "deep source": ("def f():\n    return " + "-" * 5_000 + "1", {"does not compile", "-1", "1"}),
    "long source": ("def f():\n    x = [" + "1,\n" * 100_000 + "]\n    return 1", {"1"}),
    # Signals and limits
    "alarm": (
        "import signal\ndef f():\n    signal.setitimer(signal.ITIMER_REAL, 0.01)\n    signal.pause()",
        {"killed"},
    ),
    "stops itself": ("import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGSTOP)", {"timeout"}),
    "interrupts itself": (
        "import os, signal\ndef handler(*a): raise KeyboardInterrupt\nsignal.signal(signal.SIGINT, handler)\n"
        "def f():\n    os.kill(os.getpid(), signal.SIGINT)\n    return 1",
        {"KeyboardInterrupt()"},
    ),
    "lowers its limits": (
        "import resource\nfor kind in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):\n"
        "    resource.setrlimit(kind, (0, 0))\ndef f(): return 1",
        {"1", "memory", "exit", "crashed", "module raises"},
    ),
    # What it leaves in its own folder
    "closed folders": (
        "import os\nos.mkdir('a')\nopen('a/nd_evil', 'w').close()\nos.mkdir('b', 0o300)\nos.mkdir('b/c', 0)\n"
        "os.symlink('/', 'b/nd_evil')\nos.mkfifo('nd_evil')\ndef f(): return 1",
        {"1"},
    ),
    "deep folders": (
        "import os\nfor _ in range(1500):\n    os.mkdir('nd_evil')\n    os.chdir('nd_evil')\n"
        "def f(): return 1",
        {"1"},
    ),
    # What would outlive it in a process that it shares
    "registers a class": (
        "from collections.abc import Sequence\nSequence.register(set)\ndef f(): return 1",
        {"1"},
    ),
    "patches copy": (
        "import copy\ncopy._deepcopy_dispatch[list] = lambda x, memo: 'evil'\ndef f(): return 1",
        {"1"},
    ),
    "patches a code object": (
        "import copy, functools\ndef g(x): return 'evil'\n"
        "functools.update_wrapper(copy.deepcopy, g, assigned=('_' '_code_' '_',), updated=())\n"
        "def f(): return 1",
        {"1"},
    ),
    "renames a class": (
        "from collections import Counter\nCounter.__name__ = 'Evil'\ndef f(): return 1",
        {"1"},
    ),
    "makes warnings errors": (
        "import typing\ntyping.warnings.simplefilter('error')\ndef f(): return 1",
        {"1", "module raises"},
    ),
    "hidden evaluation": (
        "import typing\nclass A:\n    x: '__imp' 'ort__(\"copy\")._deepcopy_dispatch.clear()' = 3\n"
        "def f(): return len(typing.get_type_hints(A))",
        {"1"},
    ),
    "hidden attributes": (
        "import operator\nu = '_' * 2\nget = lambda name: operator.attrgetter(u + name + u)\n"
        "imports = get('globals')(lambda: 0)[u + 'built' + 'ins' + u][u + 'imp' + 'ort' + u]\n"
        "operator.attrgetter('_deepcopy_' + 'dispatch')(imports('copy')).clear()\ndef f(): return 1",
        {"1"},
    ),
    "passes for a cached pattern": (
        "import re\nclass L(int):\n    def __eq__(self, o): return True\n    def __hash__(self): return 0\n"
        "re.findall('a', 'x', L(re.IGNORECASE))\ndef f(): return 1",
        {"1"},
    ),
    "passes for a cached pattern by a made-up class": (
        "import re\nu = '_' * 2\nmethods = {u + 'eq' + u: lambda s, o: True, u + 'hash' + u: lambda s: 0}\n"
        "re.findall('a', 'x', type('L', (int,), methods)(2))\ndef f(): return 1",
        {"1"},
    ),
}

# What only the kernel can keep in
WALLED: dict[str, tuple[str, set[str]]] = {
    "fork": ("import os\ndef f():\n    os.fork()", {DENIED}),
    "fork bomb": (
        "import os\ndef f():\n    while True:\n        try: os.fork()\n        except OSError: pass",
        {"too many events"},
    ),
    "posix_spawn": ("import os\ndef f():\n    os.posix_spawn('/bin/true', ['true'], {})", {DENIED}),
    "exec": ("import os\ndef f():\n    os.execv('/bin/true', ['true'])", {DENIED}),
    "kills its parent": ("import os\ndef f():\n    os.kill(os.getppid(), 9)", {DENIED}),
    "kills all": ("import os\ndef f():\n    os.kill(-1, 9)", {DENIED}),
    "session": ("import os\ndef f():\n    os.setpgid(0, 0)", {DENIED}),
    "socket": ("import socket\ndef f():\n    socket.socket()", {DENIED}),
    "chmod": ("import os\ndef f():\n    os.chmod('OUTSIDE', 0o700)", {DENIED}),
    "reads files": ("def f():\n    open('/etc/passwd')", {"PermissionError(13, 'Permission denied')"}),
    "writes files": (
        "def f():\n    open('OUTSIDE/nd_evil', 'w')",
        {"PermissionError(13, 'Permission denied')"},
    ),
    "raises its limits": (
        "import resource\ndef f():\n    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        {"ValueError('not allowed to raise maximum limit')"},
    ),
    "subprocess": ("import subprocess\ndef f(): subprocess.run(['/bin/true'])", {DENIED}),
    "system calls": (
        "import ctypes, os\nlibc = ctypes.CDLL(None)\ndef f():\n"
        "    calls = (57, 58, 56) if os.uname().machine == 'x86_64' else (220,)\n"
        "    return [libc.fork(), *(libc.syscall(call, 17, 0, 0, 0, 0) for call in calls)]",
        {"[-1, -1, -1, -1]", "[-1, -1]"},
    ),
    "kills by a file's signal": (
        "import fcntl, os\ndef f():\n    reader, writer = os.pipe()\n"
        "    fcntl.fcntl(reader, fcntl.F_SETOWN, os.getppid())\n    fcntl.fcntl(reader, 10, 9)\n"
        "    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)\n    os.write(writer, b'x')",
        {DENIED},
    ),
    "kills by an ioctl's signal": (
        "import fcntl, os, struct\ndef f():\n    reader, writer = os.pipe()\n"
        "    fcntl.ioctl(reader, 0x8901, struct.pack('i', os.getppid()))",
        {DENIED},
    ),
    "its own memory": ("def f(): open('/proc/self/mem', 'r+b')", {FORBIDDEN}),
    "its parent's memory": (
        "import os\npath = f'/proc/{os.getppid()}/mem'\ndef f():\n    try: open(path, 'r+b')\n"
        "    except PermissionError: return 1",
        {"1"},
    ),
    "shared memory": (
        "from multiprocessing import shared_memory\n"
        "def f(): shared_memory.SharedMemory('nd_evil', create=True, size=100)",
        {FORBIDDEN},
    ),
    "its zygote's folder": ("def f(): open('../nd_evil', 'w')", {FORBIDDEN}),
    "the next program's folder": ("import os\ndef f(): [os.mkdir(f'../{i}') for i in range(9)]", {FORBIDDEN}),
    "removes its own folder": ("import os\ndef f(): os.rmdir(os.getcwd())", {FORBIDDEN}),
    "moves a file out": (
        "import os\nopen('a', 'w').close()\ndef f(): os.rename('a', 'OUTSIDE/nd_evil')",
        {FORBIDDEN},
    ),
    "links a file in": (
        "import os\ndef f():\n    try: os.link('OUTSIDE/kept', 'a')\n    except OSError: return 1",
        {"1"},
    ),
    "changes a file": ("def f(): open('OUTSIDE/kept', 'a').write('evil')", {FORBIDDEN}),
    "empties a file": ("import os\ndef f(): os.truncate('OUTSIDE/kept', 0)", {FORBIDDEN}),
    "removes a file": ("import os\ndef f(): os.remove('OUTSIDE/kept')", {FORBIDDEN}),
    "changes times": ("import os\ndef f(): os.utime('OUTSIDE/kept', (0, 0))", {DENIED}),
    "writes through a link": (
        "import os\nos.symlink('OUTSIDE', 'a')\ndef f(): open('a/nd_evil', 'w')",
        {FORBIDDEN},
    ),
    "a device": ("import os\ndef f(): os.open('/dev/zero', os.O_RDWR)", {FORBIDDEN}),
    "a socket's file": (
        "import ctypes\ndef f(): return ctypes.CDLL(None).socketpair(1, 1, 0, (ctypes.c_int * 2)())",
        {"0", "-1"},
    ),
}
