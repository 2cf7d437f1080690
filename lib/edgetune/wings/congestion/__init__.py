# SPDX-License-Identifier: Apache-2.0
"""Congestion control where it helps: the client prefixes that suffer, and the proof of a cure.

``sources`` read the sockets of a PoP, a round at a time. ``history`` remembers the rounds of the
last hours, ``selection`` chooses the prefixes that are slow all the time, and ``effect`` compares
those that are treated with a random hold-out. ``configuration`` is what hosts are told.
"""
