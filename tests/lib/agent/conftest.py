# SPDX-License-Identifier: Apache-2.0
"""The host that most tests of the agent ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_root import NearRoot, near_root


@pytest.fixture
def host(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NearRoot]:
    """One that is asked in this process; ``INIT`` of a module says what starts its services.

    Timers of systemd are stubs: what is taken back is taken back by what the test does.
    """
    init = getattr(request.module, "INIT", "sysv")
    with near_root(tmp_path / "host", init, monkeypatch) as root:
        yield root
