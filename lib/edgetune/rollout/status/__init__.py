# SPDX-License-Identifier: Apache-2.0
"""How rollouts stand, as people are shown it."""
