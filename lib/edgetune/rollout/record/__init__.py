# SPDX-License-Identifier: Apache-2.0
"""What is written of a rollout, and what the records say by themselves."""
