# SPDX-License-Identifier: Apache-2.0
"""Benchmarks, each with its peers in the same run: `python -m bench.NAME [--quick] [--json FILE]`.

Modules that begin with an underscore are shared parts, not programs.
"""
