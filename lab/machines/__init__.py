# SPDX-License-Identifier: Apache-2.0
"""Virtual machines to practise on: an image of Debian, and QEMU, in software emulation.

Knows nothing of a PoP. What does not work is an OSError with one line.
"""

from __future__ import annotations

from .image import Image
from .machine import Card, Machine

__all__ = ["Card", "Image", "Machine"]
