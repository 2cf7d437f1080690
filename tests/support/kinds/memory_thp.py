# SPDX-License-Identifier: Apache-2.0
"""How `memory.thp` is tried."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.agent_root import thp
from tests.support.trials import Trial

TRIAL = Trial(
    target={"file": "enabled"},
    taken=["madvise", "defer+madvise", "within_size"],
    refused=["Always", ""],
    settings=lambda build: [
        st.sampled_from(["always", "never"]).map(thp),
        st.sampled_from(["always", "defer"]).map(lambda word: thp(word, "defrag")),
    ],
    file=".*/transparent_hugepage/",
)
