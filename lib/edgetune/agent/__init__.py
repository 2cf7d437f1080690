# SPDX-License-Identifier: Apache-2.0
"""The host agent: reads and changes the settings of the one host it runs on, and takes them back.

It is sent over SSH as one text (see `bundle`) together with a JSON request, and answers with one
JSON document::

    {"edgetune": 1, "verb": "plan", "ok": true, "result": {...}}
    {"edgetune": 1, "verb": "plan", "ok": false, "error": {"reason", "field", "message"}}

``reason`` is ``bad_request`` (nothing was touched), ``refused`` (a precondition does not hold,
nothing was touched), ``undone`` (it was tried, and all is seen to be as before) or ``failed``.
Its copy on the host's disk stays as long as a tuning stands. It runs as ``agent.py boot`` at each
boot, as ``agent.py revert TUNING``, which takes an unconfirmed change back at its deadline, and by
a person at the host's console, when no controller can be had, as ``agent.py restore TUNING``.
Every path is below ``EDGETUNE_ROOT`` (default ``/``); below another root no program is run but
those in ROOT/usr/local/sbin.

Standard library only, Python 3.6 or newer, hence no ``from __future__ import annotations``.
"""
