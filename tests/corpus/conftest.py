import pytest
from shapes import make_package, run_pytest


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """The small package's own tests, run once with the plugin: the process, and the folder it wrote."""
    folder = make_package(tmp_path_factory.mktemp("shapes") / "shapes-1.0")
    ran = run_pytest(folder, "--nd-trace", "out", "--nd-trace-package", "shapes", "--nd-trace-share", "1")
    return ran, folder / "out"
