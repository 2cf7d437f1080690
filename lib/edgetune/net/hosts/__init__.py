# SPDX-License-Identifier: Apache-2.0
"""Hosts over SSH: the agent that runs on them, and the conversations with it."""

import sys

# Paramiko imports invoke, if there is one, to read files like ~/.ssh/config, which we never do.
# That takes as long as all the rest of it, in every action.
sys.modules.setdefault("invoke", None)  # type: ignore[arg-type]
