"""The tfds builders, downloading from a server on this machine."""

import functools
import http.server
import json
import sys
import threading

import pytest

from nd_jax.errors import UserError

ROWS = [
    {"code": "def f(x):\n    return x + 1", "input": "1", "output": "2", "id": "sample_0"},
    {"code": "def f(s):\n    return s * 2", "input": "'é'", "output": "'éé'", "id": "sample_1"},
]


@pytest.fixture
def server(tmp_path):
    """Serve a small CRUXEval file over HTTP on the loopback address."""
    folder = tmp_path / "www"
    folder.mkdir()
    (folder / "cruxeval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()


def test_downloads_and_reads_without_tensorflow(server, tmp_path, monkeypatch):
    from nd_jax.data import builders

    monkeypatch.setattr(builders.Cruxeval, "URL", f"{server}/cruxeval.jsonl")
    programs = builders.load_programs(builders.Cruxeval, tmp_path / "tfds")
    assert sorted((p.id, p.source, p.entry, p.arguments, p.output) for p in programs) == [
        (row["id"], row["code"], "f", row["input"], row["output"]) for row in ROWS
    ]
    assert "tensorflow" not in sys.modules


def test_missing_download_says_what_to_do(server, tmp_path, monkeypatch):
    from nd_jax.data import builders

    monkeypatch.setattr(builders.Cruxeval, "URL", f"{server}/absent.jsonl")
    with pytest.raises(UserError, match="--data FILE"):
        builders.load_programs(builders.Cruxeval, tmp_path / "tfds")
