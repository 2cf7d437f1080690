# SPDX-License-Identifier: Apache-2.0
"""What the metrics are that tunings name."""
