# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the judge, and the peers that it is held against."""
