# SPDX-License-Identifier: Apache-2.0
"""Worlds, doubles and servers that tests share; a double of a port is one file of its folder."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures"
