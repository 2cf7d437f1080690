-- SPDX-License-Identifier: Apache-2.0
-- Requests wait until each server was checked once, as `init-state down` of HAProxy 3.1 has it.
-- A process that begins without states takes every server for up until a check has failed.
-- In TCP mode, because a whole HTTP request would end the inspect-delay, and the wait, at once.
local states = io.open("haproxy.state")
local all_checked = states ~= nil
if states then states:close() end

local function is_checked(server)
    local said = server:get_stats()
    return said.status:find("MAINT") or not said.check_status:find("INI")
end

local function are_all_checked()
    for _, backend in pairs(core.backends) do
        for _, server in pairs(backend.servers) do
            if not is_checked(server) then return false end
        end
    end
    return true
end

core.register_action("first_checks", { "tcp-req" }, function()
    while not all_checked do
        all_checked = are_all_checked()
        if not all_checked then core.msleep(10) end
    end
end)
