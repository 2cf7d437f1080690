# SPDX-License-Identifier: Apache-2.0
"""Documents as they come back from a store."""

from __future__ import annotations

import json
from typing import TypeVar

from edgetune.base.documents.reading import decoded, encoded

Kind = TypeVar("Kind")


def stored(document: Kind) -> Kind:
    return decoded("document", type(document), json.loads(json.dumps(encoded(document))))
