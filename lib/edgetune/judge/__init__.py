# SPDX-License-Identifier: Apache-2.0
"""Whether a tuning helped: from counted samples to a verdict, with arithmetic alone."""
