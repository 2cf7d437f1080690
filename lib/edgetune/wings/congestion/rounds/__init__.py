# SPDX-License-Identifier: Apache-2.0
"""The congestion control of a PoP's clients, tuned round by round.

``steps`` has a file for each action. A round claims the PoP's congestion control (``work``), asks
what keeps it from changing hosts, reads, selects and compares (``round``), and tells hosts
(``telling``).
"""
