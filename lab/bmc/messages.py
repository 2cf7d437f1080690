# SPDX-License-Identifier: Apache-2.0
"""What a BMC says when it refuses: the DMTF's own messages, and each vendor's where it differs."""

from __future__ import annotations

from typing import Any

from .personality import Personality

BASE = "Base.1.0."
# Texts of DMTF's Base message registry 1.0.0; {0} is the first argument.
STANDARD: dict[str, dict[str, Any]] = {
    "success": {"status": 200, "id": "Success", "text": "Successfully Completed Request"},
    "reset_required": {
        "status": 200,
        "id": "SystemResetRequired",
        "text": "One or more properties were changed and will not take effect until system is"
        " reset.",
    },
    "missing": {
        "status": 404,
        "id": "ResourceMissingAtURI",
        "text": "The resource at the URI {0} was not found.",
    },
    "no_session": {
        "status": 401,
        "id": "NoValidSession",
        "text": "There is no valid session established with the implementation.",
    },
    "login_refused": {
        "status": 401,
        "id": "ResourceAtUriUnauthorized",
        "text": "While accessing the resource at {0}, the service received an authorization error"
        " unauthorized.",
    },
    "session_limit": {
        "status": 503,
        "id": "SessionLimitExceeded",
        "text": "The session establishment failed due to the number of simultaneous sessions"
        " exceeding the limit of the implementation.",
    },
    "etag_wrong": {
        "status": 412,
        "id": "PreconditionFailed",
        "text": "The ETag supplied did not match the ETag required to change this resource.",
    },
    "etag_missing": {
        "status": 428,
        "id": "PreconditionRequired",
        "text": "A precondition header or annotation is required to change this resource.",
    },
    "not_allowed": {
        "status": 405,
        "id": "OperationNotAllowed",
        "text": "The HTTP method is not allowed on this resource.",
    },
    "malformed": {
        "status": 400,
        "id": "MalformedJSON",
        "text": "The request body submitted was malformed JSON and could not be parsed by the"
        " receiving service.",
    },
    "unknown": {
        "status": 400,
        "id": "PropertyUnknown",
        "text": "The property {0} is not in the list of valid properties for the resource.",
    },
    "read_only": {
        "status": 400,
        "id": "PropertyNotWritable",
        "text": "The property {0} is a read only property and cannot be assigned a value.",
    },
    "wrong_type": {
        "status": 400,
        "id": "PropertyValueTypeError",
        "text": "The value {0} for the property {1} is of a different type than the property can"
        " accept.",
    },
    "not_in_list": {
        "status": 400,
        "id": "PropertyValueNotInList",
        "text": "The value {0} for the property {1} is not in the list of acceptable values.",
    },
    "out_of_range": {
        "status": 400,
        "id": "PropertyValueOutOfRange",
        "text": "The value {0} for the property {1} is not in the supported range of acceptable"
        " values.",
    },
    "parameter": {
        "status": 400,
        "id": "ActionParameterNotSupported",
        "text": "The parameter {0} for the action {1} is not supported on the target resource.",
    },
    "power_state": {
        "status": 409,
        "id": "ResourceInUse",
        "text": "The change to the requested resource failed because of its power state.",
    },
    "in_post": {
        "status": 503,
        "id": "ServiceInUnknownState",
        "text": "The operation failed because the service is in an unknown state and can no longer"
        " take incoming requests.",
    },
    "busy": {
        "status": 503,
        "id": "ServiceTemporarilyUnavailable",
        "text": "The service is temporarily unavailable. Retry in 1 seconds.",
    },
    "not_applied": {
        "status": 400,
        "id": "PropertyValueConflict",
        "text": "The property {1} could not be written because its value {0} would conflict with"
        " the value of another property.",
    },
    "committed": {
        "status": 400,
        "id": "ResourceInUse",
        "text": "The change could not be made because another change is being applied.",
    },
}


class Refused(Exception):
    """The BMC refuses: `key` names the message, `arguments` fill its text."""

    def __init__(self, key: str, *arguments: object) -> None:
        super().__init__(key, *arguments)
        self.key = key
        self.arguments = [str(argument) for argument in arguments]


def message(personality: Personality, key: str, arguments: list[str]) -> dict[str, Any]:
    """One entry of @Message.ExtendedInfo, as this vendor writes it."""
    known = {**STANDARD[key], **personality.messages.get(key, {})}
    name = known["id"] if "." in known["id"] else BASE + known["id"]
    entry = {"MessageId": name, "MessageArgs": arguments}
    if personality.terse:
        return entry
    severity = "OK" if known["status"] < 300 else "Critical"
    text = known["text"].format(*arguments)
    return {**entry, "Message": text, "Severity": severity, "RelatedProperties": []}


def status(personality: Personality, key: str) -> int:
    known = {**STANDARD[key], **personality.messages.get(key, {})}
    return int(known["status"])


def body(personality: Personality, key: str, arguments: list[str]) -> dict[str, Any]:
    """The Redfish error body around one message; successes of some vendors come in it as well."""
    entries = [message(personality, key, arguments)]
    if personality.terse:
        code, text = "iLO.0.10.ExtendedInfo", "See @Message.ExtendedInfo for more information."
    elif status(personality, key) < 300:
        return {"@Message.ExtendedInfo": entries}
    else:
        code, text = BASE + "GeneralError", "A general error has occurred. See ExtendedInfo."
    return {"error": {"@Message.ExtendedInfo": entries, "code": code, "message": text}}
