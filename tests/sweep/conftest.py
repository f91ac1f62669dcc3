import pytest
from standin import FakeNd

from nd_jax.sweep import job, local


@pytest.fixture
def fake(monkeypatch) -> FakeNd:
    """Puts the stand-in where commands are called."""
    made = FakeNd()
    monkeypatch.setattr(job, "call", made)
    monkeypatch.setattr(local, "call", made)
    return made
