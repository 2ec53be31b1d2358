"""POST /v1/subscribe-snapshot: daily snapshots of addresses for a year."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from chainfolio.api.addressbook import Address
from chainfolio.api.changes import change, run_after_change
from chainfolio.api.context import Answer, Context
from chainfolio.api.example_addresses import ANOTHER, WALLET
from chainfolio.api.failures import NO_CHAIN
from chainfolio.api.router import write
from chainfolio.api.status import Moment, iso_time
from chainfolio.api.texts import MAX_CHARS, tidy
from chainfolio.assets import Account, account
from chainfolio.contracts import Issue
from chainfolio.engine.account_support import split_supported
from chainfolio.errors import BadRequest
from chainfolio.portfolio.compose import issue_documents
from chainfolio.portfolio.document import IssueDocument
from chainfolio.storage.state import accounts, subscriptions
from chainfolio.storage.state.address_book import distinct
from chainfolio.storage.state.database import Transaction
from chainfolio.storage.state.refusals import Refusal

PRICE: Final = 1200  # credits for one address and year


class NewSubscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An address to subscribe to."""

    address: Annotated[Address, msgspec.Meta(examples=[ANOTHER])]
    description: Annotated[
        str, msgspec.Meta(description="A text for people; trimmed.", extra_json_schema={"maxLength": MAX_CHARS})
    ] = ""

    def __post_init__(self) -> None:
        """Check the address, and tidy the description; ValueError if one is invalid."""
        try:
            account(self.address)
        except BadRequest as error:
            raise ValueError(f"`address` is malformed: {error.reason}") from None
        msgspec.structs.force_setattr(self, "description", tidy("description", self.description))


class NewSubscriptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Addresses to subscribe to. No address may be repeated."""

    addresses: Annotated[list[NewSubscription], msgspec.Meta(min_length=1, max_length=100)]

    def __post_init__(self) -> None:
        try:
            distinct(each.address for each in self.addresses)
        except Refusal as refusal:
            raise ValueError(f"`addresses`: {refusal}") from None


class Subscription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Subscription to snapshots of one address, taken every day at 00:00 UTC until `expiresAt`."""

    address: str
    description: str
    began_at: Moment | None
    expires_at: Moment | None


class SubscriptionsAnswer(msgspec.Struct, frozen=True):
    """New subscriptions.

    If no chain is configured for an address, it is not subscribed to and costs nothing; `completeness` is then
    `partial`, and `issues` list the address.
    """

    message: str
    subscriptions: list[Subscription]
    completeness: Literal["complete", "partial"] = "complete"
    issues: tuple[IssueDocument, ...] = ()


@write(
    "POST",
    "/v1/subscribe-snapshot",
    tag="Portfolio",
    summary="Subscribe to daily snapshots",
    needs="portfolio",
    cost=PRICE,
    check=lambda request, body: check_served(request, body),
    units=lambda arguments: len(arguments["body"].addresses),
    codes=("ALREADY_SUBSCRIBED",),
    fails={501: NO_CHAIN},
    answers={200: SubscriptionsAnswer},
    example={
        "message": "1 address is subscribed to",
        "subscriptions": [
            {
                "address": WALLET,
                "description": "Treasury",
                "beganAt": "2026-03-01T12:00:00.000Z",
                "expiresAt": "2027-03-01T12:00:00.000Z",
            }
        ],
        "completeness": "complete",
        "issues": [],
    },
)
async def subscribe_snapshot(request: Context, body: NewSubscriptions) -> Answer:
    """Subscribes to all the addresses for one year from now or, on an error, to none.

    It costs 1200 credits per address. An address with a running subscription is refused with 409. The histories of the
    addresses are indexed during that year. An address without a configured chain is left out and costs nothing;
    `issues` list it.
    """
    now_us, principal = request.parts.environment.clock.now_us(), request.principal
    owner, actor = principal.account_id, principal.key_id
    described = zip(distinct(each.address for each in body.addresses), body.addresses, strict=True)
    _, unserved = _served(request, body)
    texts = {address: each.description for address, each in described if address not in unserved}
    issues = issue_documents(list(unserved.values()))

    sold: dict[Account, int] = {}

    def work(tx: Transaction) -> SubscriptionsAnswer:
        accounts.lock(tx, owner)
        added = subscriptions.add(tx, owner, texts, now_us, actor)
        sold.update((account(each.address), each.expires_us) for each in added)
        count = "1 address is" if len(added) == 1 else f"{len(added)} addresses are"
        completeness: Literal["complete", "partial"] = "partial" if issues else "complete"
        return SubscriptionsAnswer(f"{count} subscribed to", [_answer(each) for each in added], completeness, issues)

    answer = await change(request, work)
    # The server repeats this regularly for all subscriptions (`cli/daily.py`).
    await run_after_change(request.engine.watch_subscribed(owner, sold))
    return answer


def check_served(request: Context, body: NewSubscriptions) -> None:
    """Exempt addresses without a configured chain from the cost.

    Raises NotSupported, through `split_supported`, if no address has a configured chain.
    """
    _, unserved = _served(request, body)
    request.unanswerable = len(unserved)


def _served(request: Context, body: NewSubscriptions) -> tuple[list[Account], dict[str, Issue]]:
    """Return the accounts with a configured chain, and an issue for each other one by address."""
    return split_supported([account(each.address) for each in body.addresses], request.engine.kinds(), "a snapshot")


def _answer(subscription: subscriptions.Subscription) -> Subscription:
    """Return a subscription as the API shows it; times are UTC texts."""
    return Subscription(
        address=subscription.address,
        description=subscription.description,
        began_at=iso_time(subscription.began_us),
        expires_at=iso_time(subscription.expires_us),
    )
