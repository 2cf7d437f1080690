# SPDX-License-Identifier: Apache-2.0
"""What judges say of the same simulated soaks: ours, and those of today (see `__main__`)."""
