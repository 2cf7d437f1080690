# SPDX-License-Identifier: Apache-2.0
"""How `file` is tried."""

from __future__ import annotations

from tests.support.trials import Trial, any_of

OWN_FILE = "/etc/nginx/nginx.conf"

TRIAL = Trial(
    target={"path": "/etc/nginx/nginx.conf"},
    taken=["a\n", "\n", "größer\n\n"],
    refused=["a", ""],
    settings=lambda build: [
        any_of("file", {"path": path}, "worker_processes 4;\n", "# nothing\n\n")
        for path in (OWN_FILE, "/etc/nginx/conf.d/deep/tuned.conf")
    ],
)
