"""Hooks of schemathesis: the reasons for which a valid request may be refused with 400.

No schema can say them. Each is a sentence of ours; a refusal in any other words is a failure of
`positive_data_acceptance`.
"""

from __future__ import annotations

import re
from typing import Any, Final

import schemathesis

REASONS: Final = (
    r"`[\w\[\]]+` is malformed: ",  # a checksum, or a number of the field that Starknet counts in
    r"`address` is malformed: ",
    r" is base58 but neither a Solana nor a Tron address$",  # the same, as the address book says it
    r" is not a Starknet address: outside the field$",
    r" is not a Tron address: its checksum is wrong$",
    r"is given more than once$",  # one address in two spellings
    r"`date` cannot be .*: it is in the future",
    r"`date` cannot be .*: Invalid date format",  # a year that the calendar does not count
    r"`perWallet` cannot be `true`: ",
    r"rangeFrom \d+ is after rangeTo \d+$",
    r"the range is longer than \d+ ",
    r"`startDate` is after `endDate`$",
    r"`startDate` to `endDate` are [\d,]+ days: at most \d+$",
    r"`(?:startDate|endDate)` cannot be ",  # a text that is no moment of the calendar
    r"`cursor` was not given out for this chain and these addresses",
    r"`(?:networks|chain)` cannot (?:hold|be) .*: it is one of ",  # a chain that is not configured
    r"^the body is malformed: `(?:bound|subject|url|target|chain|kind)`: ",  # of a rule of alerts, by its kind
    r"^delivery: its target was removed with its rule$",
    r"^the body is malformed: send either `query` or `saved`$",
    r"^the body is malformed: `query` has a character NUL$",
    r"`limit` is at most \d+ on this server$",
    r"has \d+ to \d+ characters after trimming",
    r"holds \d+ (?:addresses|values|virtual users); at most \d+ ",  # repeated beyond the limit of the settings
)


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Return False if a valid request was refused for one of the reasons, else True."""
    if type(failure).__name__ != "RejectedPositiveData" or response.status_code != 400:
        return True
    document = response.json()
    error = document.get("error")
    message: str = document.get("message") or (error["message"] if isinstance(error, dict) else error)
    return not all(any(re.search(reason, part) for reason in REASONS) for part in re.split(r"; (?=`)", message))
