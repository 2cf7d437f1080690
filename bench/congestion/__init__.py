# SPDX-License-Identifier: Apache-2.0
"""What congestion control of prefixes costs, and how often it is misjudged (see `__main__`)."""
