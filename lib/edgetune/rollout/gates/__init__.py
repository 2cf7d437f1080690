# SPDX-License-Identifier: Apache-2.0
"""What keeps a rollout from beginning anything more."""
