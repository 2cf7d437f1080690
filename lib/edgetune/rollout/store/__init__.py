# SPDX-License-Identifier: Apache-2.0
"""Where the state of rollouts is kept: records, claims, signs of life, StackStorm itself."""
