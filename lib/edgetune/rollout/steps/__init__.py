# SPDX-License-Identifier: Apache-2.0
"""One file for each action: what it does, as one sentence after another."""
