# SPDX-License-Identifier: Apache-2.0
"""The workflows, conducted by the local runner."""
