"""The notebooks run from top to bottom, and are committed without what running leaves in them."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))


def test_the_notebooks_are_there():
    assert [path.stem for path in NOTEBOOKS] == ["export_and_use", "quickstart", "scaling"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (requirements-dev.txt)")
    import nbformat

    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")  # as a reader has; the kernel inherits it
    for part in ROOT.iterdir():  # the checkout without what its user ran in it
        if part.name != "runs":
            (tmp_path / part.name).symlink_to(part)
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
