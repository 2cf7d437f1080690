# SPDX-License-Identifier: Apache-2.0
"""Every sentence, page and picture that a person reads."""
