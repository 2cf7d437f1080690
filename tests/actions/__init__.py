# SPDX-License-Identifier: Apache-2.0
"""Each action of the pack: its results, its errors, and that it is safe to run again."""
