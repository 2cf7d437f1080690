# SPDX-License-Identifier: Apache-2.0
"""What a person wants: a tuning, on which hosts, judged by which metrics."""
