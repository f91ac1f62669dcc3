"""Files that are there whole or not at all, whenever the process is killed."""

import json
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)
