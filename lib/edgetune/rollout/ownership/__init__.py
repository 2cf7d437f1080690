# SPDX-License-Identifier: Apache-2.0
"""Who may act on a rollout, and who takes over what lost its owner."""
