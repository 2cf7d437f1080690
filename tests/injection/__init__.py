# SPDX-License-Identifier: Apache-2.0
"""Texts that somebody else chose stay data."""
