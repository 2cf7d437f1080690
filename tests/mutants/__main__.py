# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys

from tests.mutants import main

if __name__ == "__main__":
    sys.exit(main())
