# SPDX-License-Identifier: Apache-2.0
"""What is measured of a rollout: samples, baseline, the looks at a soak, surges."""
