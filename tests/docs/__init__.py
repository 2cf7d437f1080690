# SPDX-License-Identifier: Apache-2.0
"""The pages are true: commands, screens, messages, tables."""
