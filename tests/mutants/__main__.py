# SPDX-License-Identifier: Apache-2.0
"""python -m tests.mutants [WORD ...]"""

import sys

from tests.mutants import main

sys.exit(main())
