# SPDX-License-Identifier: Apache-2.0
"""The library: a folder for each of its rooms."""
