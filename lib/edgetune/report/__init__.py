# SPDX-License-Identifier: Apache-2.0
"""Every answer, sentence, page and picture that a person reads."""
