# SPDX-License-Identifier: Apache-2.0
"""How rollouts stand, and what of that needs a person."""
