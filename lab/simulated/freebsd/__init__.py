# SPDX-License-Identifier: Apache-2.0
"""A host with FreeBSD as a directory: its kernel, pool and services are doubles of few programs.

What they print has the form of FreeBSD's own sources. No real host is behind it.
"""
