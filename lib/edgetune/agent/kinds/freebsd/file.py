# SPDX-License-Identifier: Apache-2.0
"""Whole files, which are the same on every system."""

from edgetune.agent.kinds.file import File

__all__ = ["File"]
