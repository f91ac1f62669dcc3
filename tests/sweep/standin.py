"""What tests of sweeps share: `nd` in this process, and a stand-in for it."""

import json
from pathlib import Path

import run_verb

ROOT = Path(__file__).parents[2]


class FakeNd:
    """Notes the commands, and leaves what `nd train` does. ``sweep run`` is really done."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.failing = ""
        """The command whose folder has this name fails."""
        self.stopped = "finished"
        """What a training says of its end."""

    def __call__(self, words, output=None, pass_fds=(), watch=lambda: None) -> int:
        if words[:2] == ("sweep", "run"):
            watch()
            return nd(*words)
        name = Path(words[words.index("--out") + 1]).name if "--out" in words else Path(words[-1]).name
        self.called.append(f"{words[0]} {name}")
        if words[0] == "train":
            folder = Path(words[words.index("--out") + 1])
            (folder / "train.json").write_text(json.dumps({"stopped": self.stopped, "seconds": 2.0}))
        if name == self.failing:
            output.write("Traceback\n\nValueError: too wide\n")
            return 1
        return 0


def nd(*words: object) -> int:
    """Run a verb in this process, and give what it returned."""
    try:
        run_verb.nd(*words)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0
