# SPDX-License-Identifier: Apache-2.0
"""Mistakes about the load balancer."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

TRAFFIC = mutations_of(
    "lib/edgetune/traffic",
    ["lib/traffic/test_contract", "lib/traffic/test_answers", "lib/traffic/test_haproxy"],
    (
        "a failing check hides a weight of 0",
        "haproxy_answers.py",
        '    if status[0] == "DRAIN" and',
        '    if status[0] == "DOWN":\n        return ""\n    if status[0] == "DRAIN" and',
    ),
    (
        "HAProxy's queued requests are no sessions",
        "haproxy_answers.py",
        'sessions=_number(stat, "scur") + _number(stat, "qcur")',
        'sessions=_number(stat, "scur")',
    ),
    (
        "a state that HAProxy did not take is taken for set",
        "haproxy_backend.py",
        "        if not _shows(now, change, bool(unanswered)):\n",
        "        if False:\n",
    ),
    (
        "a server in maint by its configuration, its address or another one is ready",
        "haproxy_answers.py",
        "_MAINT_BITS = _FORCED_MAINT | 0x02 | 0x04 | 0x20",
        "_MAINT_BITS = _FORCED_MAINT",
    ),
    (
        "a server that drains is ready",
        "haproxy_answers.py",
        "_DRAIN_BITS = _FORCED_DRAIN | 0x10",
        "_DRAIN_BITS = 0x10",
    ),
    (
        "a withdrawal lets clients of former days to an isolated server again",
        "haproxy_backend.py",
        "        if server not in known or not known[server].withdrawn:\n",
        "        if True:\n",
    ),
    (
        "what somebody else withdrew is let in again",
        "haproxy_backend.py",
        "        self._set(server, state, deadline)\n",
        "        self._set(server, READY, deadline)\n",
    ),
    (
        "a server of weight 0 is in service",
        "haproxy_answers.py",
        '    if not (_number(state, "srv_uweight") and _number(stat, "weight")):\n',
        "    if False:\n",
    ),
    (
        "a backup is in service while others serve",
        "haproxy_answers.py",
        '    if not backups or _number(total, "act"):\n',
        "    if not backups:\n",
    ),
    (
        "all backups serve where the first one does",
        "haproxy_answers.py",
        '_number(total, "weight") > _number(first, "weight")',
        "True",
    ),
    (
        "a column that is not there is 0",
        "haproxy_answers.py",
        "    if not row.keys() >= {*columns}:\n",
        '    row = {**dict.fromkeys(columns, "0"), **row}\n    if False:\n',
    ),
    (
        "a server comes back without the weight that it had",
        "haproxy_backend.py",
        "        if weight:\n",
        "        if False:\n",
    ),
    (
        "a server that had no weight is let in before it has none again",
        "haproxy_backend.py",
        "            self._weigh(server, weight, deadline)\n"
        "        self._set(server, state, deadline)\n",
        "            pass\n        self._set(server, state, deadline)\n"
        "        self._weigh(server, weight, deadline)\n",
    ),
    (
        "what a server inherits is forced upon it",
        "haproxy_answers.py",
        "_withdrawn(bits & (_FORCED_MAINT | _FORCED_DRAIN)) or READY",
        "withdrawn or READY",
    ),
    (
        "an agent that is stopped may still let a server in",
        "haproxy_answers.py",
        'has_agent = bool(_number(state, "srv_agent_state") & _CHECK_ENABLED)',
        'has_agent = bool(_number(state, "srv_agent_state"))',
    ),
    (
        "an error of HAProxy is taken for obedience",
        "haproxy_backend.py",
        "        if refusal:\n",
        "        if False:\n",
    ),
    (
        "an answer that was cut off is taken for the whole",
        "haproxy_answers.py",
        '    if not between or not stats_text.endswith("\\n\\n"):\n',
        "    if not between:\n",
    ),
    (
        "servers that only one of two answers names are left out",
        "haproxy_answers.py",
        "    if states.keys() != stats.keys():\n",
        "    if False:\n",
    ),
    (
        "a server whose check fails is up",
        "haproxy_answers.py",
        '"DOWN": False',
        '"DOWN": True',
    ),
    (
        "a server that is down is in service",
        "driver.py",
        "return not self.withdrawn and self.up",
        "return not self.withdrawn",
    ),
    (
        "a server that drains is in service",
        "driver.py",
        "return not self.withdrawn and self.up",
        "return self.up",
    ),
)
NO_REQUESTS = mutations_of(
    "lib/edgetune/rollout",
    ["lib/rollout/steps/test_no_requests", "lib/traffic/test_several"],
    (
        "a host that got no requests has to get some afterwards",
        "in_service.py",
        'return f"{_IDLE}{state}" if gets_none and was_admitted(state) else state',
        "return state",
    ),
    (
        "a host that waits as a backup is not back",
        "../traffic/driver.py",
        'own.idle in ("", BACKUP)',
        "not own.idle",
    ),
    (
        "a host that gets no requests after a rollout is back",
        "../traffic/driver.py",
        ' and own.idle in ("", BACKUP)',
        "",
    ),
    (
        "a plan knows nothing of agents that let drained hosts in",
        "preflight.py",
        "        if server and server.overridden_by:\n",
        "        if False:\n",
    ),
)
SEVERAL = mutations_of(
    "lib/edgetune/traffic",
    ["lib/traffic/test_several", "lib/rollout/test_several_balancers"],
    (
        "a host that one of several load balancers still serves is drained",
        "several.py",
        "(any_withdrawn and not all_withdrawn)",
        "False",
    ),
    (
        "a host that one of several load balancers serves serves in all",
        "several.py",
        "        up=is_whole and all(own.up for own in every),\n",
        "        up=any(own.up for own in every),\n",
    ),
    (
        "sessions of one of several load balancers are left out",
        "several.py",
        "sessions=sum(known) if",
        "sessions=min(known) if",
    ),
    (
        "of several load balancers one that is away has nothing to say",
        "several.py",
        "        if self.failed:\n            raise",
        "        if False:\n            raise",
    ),
    (
        "one load balancer that is away keeps all others from putting a host back",
        "several.py",
        "        changed = _each(having, change)\n",
        "        known.refuse()\n        changed = _each(having, change)\n",
    ),
    (
        "a load balancer that was not put back is not named",
        "several.py",
        "        problems = [*known.failed.values(), *lacking, *changed.failed.values()]\n",
        "        problems = [*changed.failed.values()]\n",
    ),
    (
        "a server that one of two load balancers lacks is no matter",
        "several.py",
        "        roles = {part.role for part in self._parts if server in told[part.name]}\n"
        "        own = [part.name for part in self._parts if part.role in roles]\n",
        "        own = [part.name for part in self._parts if server in told[part.name]]\n",
    ),
    (
        "each of several load balancers gets back what the first one had",
        "several.py",
        "words.get(part.name, usual)",
        "next(iter(words.values()), usual)",
    ),
    (
        "one of several load balancers that forgot a drain is not told again",
        "driver.py",
        "        return not self.unknown and any(not own.withdrawn for own in told)\n",
        "        return not self.unknown and not self.withdrawn\n",
    ),
    (
        "a host that only one load balancer serves needs no room to leave",
        "driver.py",
        "        return any(own.is_serving for own in self._told)\n",
        "        return self.is_serving\n",
    ),
    (
        "one failing check of several proves a machine",
        "driver.py",
        "        return not any(own.up for own in self._told) and not self.up\n",
        "        return not self.up\n",
    ),
    (
        "one address of a list that two PoPs share goes unseen",
        "../inventory.py",
        "itertools.product(*named)",
        "[sum(named, [])]",
    ),
    (
        "one host that cannot be put back keeps others out of service",
        "../rollout/steps/undrain_hosts.py",
        "        except DrainError as error:\n            problems[host.name] = str(error)\n",
        "        except KeyError as error:\n            problems[host.name] = str(error)\n",
    ),
)
TLS = mutations_of(
    "lib/edgetune/traffic",
    ["lib/traffic/test_tls"],
    (
        "a name in a certificate of HAProxy counts for nothing",
        "../net/connection.py",
        "            context = ssl.create_default_context(cafile=self.ca_file or None)\n",
        "            context = ssl.create_default_context(cafile=self.ca_file or None)\n"
        "            context.check_hostname = False\n",
    ),
    (
        "HAProxy is shown no certificate",
        "../net/connection.py",
        "        if self.certificate_file:\n",
        "        if False:\n",
    ),
)
HOOKS = mutations_of(
    "lib/edgetune/traffic",
    ["lib/traffic/test_hooks"],
    (
        "a hook that does nothing and says yes is believed",
        "hook.py",
        "            if now and (bool(how) if wanted is None else how == wanted):\n",
        "            if now and not problem:\n",
    ),
    (
        "a server whose hook does not tell its sessions carries none",
        "hook.py",
        '    if "sessions" not in fields.names():\n',
        "    if False:\n",
    ),
    (
        "a server whose hook does not say whether it is up is down, and not an error",
        "hook.py",
        '    if "up" not in fields.names():\n',
        "    if False:\n",
    ),
    (
        "what a lost answer had done is taken for failed",
        "hook.py",
        '            problem = f" ({error})"\n',
        "            raise\n",
    ),
    (
        "a failed hook is taken for done",
        "hook.py",
        '            problem = f" ({error})"\n',
        "            return\n",
    ),
    (
        "why a hook failed is not told",
        "hook.py",
        '            problem = f" ({error})"\n',
        '            problem = " "\n',
    ),
    (
        "a failed hook is waited for until its time is up",
        "hook.py",
        "            if problem or clock.monotonic() + POLL > deadline:\n",
        "            if clock.monotonic() + POLL > deadline:\n",
    ),
    (
        "what a hanging program started changes a server later",
        "drivers/command.py",
        "                os.killpg(process.pid, signal.SIGKILL)\n",
        "                process.kill()\n",
    ),
    (
        "a failing program is believed",
        "drivers/command.py",
        "        if process.returncode:\n",
        "        if False:\n",
    ),
)
ON_HOSTS = mutations_of(
    "lib/edgetune",
    [
        "lib/hosts/agent/test_flag",
        "lib/rollout/steps/test_hosts_that_steer",
        "lib/traffic/test_contract",
    ],
    (
        "a host that does not answer is in service",
        "traffic/driver.py",
        "return not self.withdrawn and self.up and not self.unknown",
        "return not self.withdrawn and (self.up or bool(self.unknown))",
    ),
    (
        "a host whose withdrawal failed is taken for withdrawn",
        "traffic/on_hosts.py",
        "        if problem:\n",
        "        if False:\n",
    ),
    (
        "hosts none of which answers are a PoP without servers in service",
        "traffic/on_hosts.py",
        "        if told and all(each.error for each in told.values()):\n",
        "        if False:\n",
    ),
    (
        "a boot brings a drained host back into service",
        "hosts/agent/drains/flag.py",
        "        if kind in VOLATILE:\n",
        "        if False:\n",
    ),
    (
        "a host is drained before what reads its flag has followed",
        "hosts/agent/drains/flag.py",
        "            leaving=flagged and ",
        "            leaving=False and ",
    ),
    (
        "a host serves again before what reads its flag has followed",
        "hosts/agent/drains/flag.py",
        "            up=flagged or age is None or age >= self._settle,\n",
        "            up=True,\n",
    ),
    (
        "what a person wrote into a flag is lost",
        "hosts/agent/drains/flag.py",
        "        if self._is_there():\n            return\n        refuses",
        "        refuses",
    ),
    (
        "hosts that know no port to count on carry no session",
        "hosts/agent/verbs/drain.py",
        "sessions(host, ports) if ports else None",
        "sessions(host, ports)",
    ),
    (
        "a batch begins with a host of which nobody knows how it stood",
        "rollout/steps/drain_hosts.py",
        '    if unknown and work.batch_type != "restore":\n',
        "    if False:\n",
    ),
    (
        "something is done to a host that was not seen out of traffic",
        "rollout/drain.py",
        '        if not unknown or work.batch_type == "restore":\n',
        "        if True:\n",
    ),
    (
        "a silent host that serves on is called out of service",
        "rollout/quarantine.py",
        "    if server.unknown:\n        return False, shown(server)\n",
        "    if server.unknown:\n        return True, shown(server)\n",
    ),
    (
        "a host that answers late is let in although somebody had it out",
        "rollout/steps/check_drained.py",
        "        host.lb_before = state_of(server)\n",
        "        host.lb_before = ADMITTED\n",
    ),
    (
        "one host that refuses stops the return of all others",
        "rollout/steps/undrain_hosts.py",
        "        except ServerError as error:\n            refused[host.name]",
        "        except ValueError as error:\n            refused[host.name]",
    ),
)
BIRD = mutations_of(
    "lib/edgetune/hosts/agent/drains",
    ["lib/hosts/agent/test_bird"],
    (
        "a host announces without the community for a moment while it is withdrawn",
        "bird.py",
        "[pair.plain for pair in self._pairs] + [pair.graceful for pair in self._pairs]",
        "[pair.graceful for pair in self._pairs] + [pair.plain for pair in self._pairs]",
    ),
    (
        "an address that a person withdrew is announced with the community",
        "bird.py",
        "                if _is_on(known, pair.plain):\n",
        "                if True:\n",
    ),
    (
        "an address that a person withdrew is announced after the rollout",
        "bird.py",
        "if before.get(pair.plain)]",
        "]",
    ),
    (
        "our own withdrawal is taken for what was before",
        "bird.py",
        "before=self._before() or own",
        "before=own",
    ),
    (
        "a host is graceful while one of its addresses is served as before",
        "bird.py",
        '        return GRACEFUL if all(pair in graceful for pair in plain) else ""\n',
        '        return GRACEFUL if graceful else ""\n',
    ),
    (
        "routers have no time to follow an address that had the community late",
        "bird.py",
        "self._remember(known, anew=True)",
        "self._remember(known)",
    ),
    (
        "an address that was enabled by hand is no part of what a host had",
        "bird.py",
        "dict.fromkeys([*back, *on])",
        "back",
    ),
    (
        "an address comes back without the community for a moment",
        "bird.py",
        """        if gracefully:
            # First: the plain ones would be announced alone for a moment.
            for pair in dict.fromkeys([*back, *on]):
                bird.set(pair.graceful, True)
        for pair in back:
            bird.set(pair.plain, True)
""",
        """        for pair in back:
            bird.set(pair.plain, True)
        if gracefully:
            for pair in dict.fromkeys([*back, *on]):
                bird.set(pair.graceful, True)
""",
    ),
    (
        "a host that boots while it is drained announces its address",
        "bird.py",
        "            self._tell_boots(True)\n",
        "",
    ),
    (
        "a host that serves again is withdrawn by its next boot",
        "bird.py",
        "            self._tell_boots(False)\n",
        "",
    ),
    (
        "a host that no router hears is in service",
        "bird.py",
        "        return any(known[name].established for name in peers)\n",
        "        return True\n",
    ),
    (
        "a restricted socket is taken for one that obeys",
        "bird_control.py",
        "        if NO_MATCH in told:\n",
        "        if True:\n",
    ),
    (
        "a part of an answer of BIRD is taken for the whole",
        "bird_control.py",
        'rb"(?:^|\\n)\\d{4} [^\\n]*\\n\\Z"',
        'rb"\\n\\Z"',
    ),
    (
        "a host is withdrawn although routers had no time to follow the community",
        "bird.py",
        "leaving=how == GRACEFUL and self._since() < self._wait",
        "leaving=False",
    ),
)

REFUSALS = mutations_of(
    "lib/edgetune",
    ["lib/rollout/steps/test_hosts_that_steer", "lib/hosts/agent/test_flag"],
    (
        "an older epoch withdraws a host that steers itself",
        "hosts/agent/verbs/drain.py",
        "                host.fence(epoch)\n",
        "                pass\n",
    ),
    (
        "hosts that steer themselves are told no epoch",
        "rollout/lease.py",
        ".under(self.head.epoch)",
        "",
    ),
    (
        "a host that is left out refuses for the others",
        "traffic/on_hosts.py",
        "self._look().items() if name in servers]",
        "self._look().items()]",
    ),
)
AWAY = mutations_of(
    "lib/edgetune",
    ["lib/rollout/test_several_balancers", "lib/traffic/test_several"],
    (
        "a host that was not out of all load balancers is restored without one",
        "rollout/drain.py",
        "if work.hosts[name].was_out and name in checked]",
        "if name in checked]",
    ),
    (
        "a host that nobody checks is restored without one of its load balancers",
        "rollout/drain.py",
        "if checks and server and server.checked]",
        "]",
    ),
    (
        "a host that was being put back was out of traffic",
        "rollout/rollback.py",
        '"rebooted", "verified")\n# How far',
        '"rebooted", "verified", "undraining")\n# How far',
    ),
    (
        "drained hosts wait with the others for a load balancer that is away",
        "rollout/rollback.py",
        "if away and touched[name].was_out]",
        "if False]",
    ),
    (
        "no load balancer answers, and none is asked for",
        "traffic/several.py",
        "        if not (asked.failed and asked.told):\n",
        "        if not asked.failed:\n",
    ),
)
