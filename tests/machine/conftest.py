# SPDX-License-Identifier: Apache-2.0
"""One PoP for the files of whole rollouts, which run one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.practice import Practice, practising


@pytest.fixture(scope="session")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """Two hosts in namespaces and two virtual machines."""
    with practising(tmp_path_factory.mktemp("practice"), hosts=4, machines=2) as made:
        yield made
