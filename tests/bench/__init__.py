# SPDX-License-Identifier: Apache-2.0
"""The benchmarks count what they say that they count."""
