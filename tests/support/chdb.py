# SPDX-License-Identifier: Apache-2.0
"""ClickHouse as a library, where it is installed."""

from __future__ import annotations

import pytest

from lab.clickhouse import Chdb


def chdb_or_skip() -> Chdb:
    """Its Engine; without chdb the test is skipped."""
    pytest.importorskip("chdb.session", reason="chdb is not installed here (requirements-chdb.txt)")
    return Chdb()
