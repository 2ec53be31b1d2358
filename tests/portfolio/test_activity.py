"""Rule by rule: an example for each, which fits it and none before it; and what the signs are read from."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from chainfolio.addresses import EVM
from chainfolio.assets import ZERO_ADDRESS, Asset
from chainfolio.contracts import Price, Token, TransactionDetails
from chainfolio.indexer.protocol_files import protocol_of
from chainfolio.indexer.wiring import CONFIGS
from chainfolio.portfolio.activity import (
    FIRST,
    RULES,
    Activity,
    AddressFacts,
    Functions,
    Movement,
    Permission,
    Rule,
    signs,
    sort_activities,
    type_of,
)
from chainfolio.portfolio.facts import ChainFacts, Options, ProtocolFacts
from chainfolio.portfolio.pictures import drawn
from chainfolio.portfolio.spam import is_phishing
from chainfolio.portfolio.statement import RenderContext, mentions, protocol_key, record, with_prices
from chainfolio.tables import REWARD

ME, OTHER, POOL = ("0x" + digit * 40 for digit in "123")
CONTRACTS = [f"0x{digit * 40}" for digit in "abcde"]
WETH, USDC, SHARE, NFT, SPAM = (Asset("eip155:1", "erc20", contract) for contract in CONTRACTS)
ETHER = Asset("eip155:1", "slip44", "60")
CALL = bytes.fromhex("deadbeef")


def thing(token: Asset | None, number: int | None) -> Asset:
    """The native coin, a token, or one of a collection."""
    return ETHER if token is None else token if number is None else token._replace(token_id=str(number))


def came(
    token: Asset | None, sender: str = OTHER, raw: int = 5, standard: str = "erc20", number: int | None = None
) -> Any:
    return Movement(1, 0, "in", standard if token else "native", thing(token, number), raw, sender)


def left(
    token: Asset | None, recipient: str = OTHER, raw: int = 5, standard: str = "erc20", number: int | None = None
) -> Any:
    return Movement(0, 0, "out", standard if token else "native", thing(token, number), raw, recipient)


def details(
    sender: str = ME, recipient: str = POOL, failed: bool = False, selector: bytes = CALL
) -> TransactionDetails:
    return TransactionDetails(sender, recipient, None, 0, 21_000, failed, selector)


def did(*movements: Movement, by: TransactionDetails | None = None, allowed: bool = False) -> Activity:
    permissions = (Permission(9, USDC, OTHER),) if allowed else ()
    return Activity("local", ME, 7, 1_000_000, 0, "0x" + "77" * 32, movements, permissions, by or details())


def paid(raw: int) -> Movement:
    """What a validator withdrew."""
    return Movement(-1, 0, "in", "withdrawal", ETHER, raw, ZERO_ADDRESS)


def minted(raw: int) -> Movement:
    """What came from another chain."""
    return Movement(-1, -1, "in", "mint", ETHER, raw, ZERO_ADDRESS)


NOBODYS = details(sender=ZERO_ADDRESS, recipient=ME, selector=b"")
COLLECTIBLE: Any = {"standard": "erc721", "raw": 1, "number": 115}
BY_OTHER = details(sender=OTHER)
PLAIN = details(recipient=OTHER, selector=b"")
CALLS_SHARE = details(recipient=SHARE.reference)
# Rule by rule: the activity, the protocol that was called and the function.
EXAMPLES: list[tuple[str, Activity, str, str]] = [
    ("UNSTAKE", did(paid(32 * 10**18), by=NOBODYS), "", ""),
    ("COLLECT", did(paid(2 * 10**16), paid(3), by=NOBODYS), "", ""),
    ("BRIDGEIN", did(minted(9)), "", ""),
    ("FAILED", did(by=details(failed=True)), "uniswap2", "addLiquidity"),
    ("SPAM", did(left(USDC, raw=0), by=BY_OTHER), "", "transferFrom"),
    ("SPAM", did(came(SPAM), by=BY_OTHER), "", "airdrop"),
    ("SPAM", did(came(USDC), by=BY_OTHER), "", "imitated"),
    ("LEND", did(left(USDC, SHARE.reference), came(SHARE, SHARE.reference)), "compound", "mint"),
    ("BORROW", did(came(USDC, POOL)), "justlend", "borrow"),
    ("WITHDRAW", did(left(SHARE, POOL)), "aave3", "withdrawETH"),
    ("WITHDRAW", did(left(SHARE, SHARE.reference), came(USDC, SHARE.reference)), "compound", "redeem"),
    ("STAKE", did(left(None, SHARE.reference), came(SHARE, ZERO_ADDRESS)), "lido", "submit"),
    ("STAKE", did(left(None, POOL)), "beacon", "deposit"),
    ("UNSTAKE", did(left(SHARE, POOL), came(NFT, ZERO_ADDRESS, **COLLECTIBLE)), "lido", "requestWithdrawals"),
    ("DEPOSIT", did(left(SHARE, POOL)), "jupiter", "deposit"),
    ("ADDLIQUIDITY", did(left(None, POOL), came(NFT, ZERO_ADDRESS, **COLLECTIBLE)), "uniswap4", "multicall"),
    ("REPAYVAULT", did(left(USDC, ZERO_ADDRESS), came(None, POOL)), "liquity_v1", "adjustTrove"),
    ("STAKE", did(left(USDC, ZERO_ADDRESS), left(None, USDC.reference)), "aura", "lock"),
    ("BRIDGEOUT", did(left(USDC, POOL)), "gnosis_bridge", "transferAndCall"),
    ("SWAP", did(left(USDC, POOL), came(WETH, POOL)), "jupiter", "route"),
    ("DEPOSIT", did(left(USDC, POOL)), "jupiter", "initializeOrder"),
    ("WITHDRAW", did(came(USDC, POOL)), "jupiter", "cancelOrder"),
    ("INTERACTION", did(left(USDC, POOL)), "jupiter", "operate"),
    ("STAKE", did(left(None, POOL)), "solana_stake", "initializeStake"),
    ("STAKE", did(), "solana_stake", "delegateStake"),
    ("UNSTAKE", did(came(None, POOL)), "solana_stake", "withdrawStake"),
    ("UNSTAKE", did(), "solana_stake", "deactivateStake"),
    # By what the function stands for: `called X`.
    ("VOTE", did(), "", "called VOTE"),
    ("SIGN", did(), "", "called SIGN"),
    ("FOLLOW", did(), "", "called FOLLOW"),
    ("DONATION", did(left(None, POOL)), "", "called DONATION"),
    ("EXPENSE", did(left(None, POOL, 9), came(None, POOL, 2)), "", "called EXPENSE"),
    ("BRIDGEOUT", did(left(USDC, POOL)), "", "called BRIDGEOUT"),
    ("BRIDGEIN", did(came(USDC, ZERO_ADDRESS), by=BY_OTHER), "", "called BRIDGEIN"),
    ("BRIDGEIN", did(came(SHARE, ZERO_ADDRESS)), "", "called BRIDGEIN"),
    ("CLAIM", did(came(USDC, POOL), by=BY_OTHER), "", "called CLAIM"),
    ("CLAIM", did(came(SHARE, ZERO_ADDRESS)), "", "called CLAIM"),
    ("COLLECT", did(came(USDC, POOL)), "", "called COLLECT"),
    ("AIRDROP", did(came(SHARE), by=BY_OTHER), "", "called AIRDROP"),
    ("OPENVAULT", did(left(None, POOL), came(SHARE, ZERO_ADDRESS)), "", "called OPENVAULT"),
    ("CLOSEVAULT", did(left(SHARE, ZERO_ADDRESS), came(None, POOL)), "", "called CLOSEVAULT"),
    ("REPAYVAULT", did(left(USDC, POOL), left(SHARE, ZERO_ADDRESS)), "", "called REPAYVAULT"),
    ("BORROW", did(came(USDC, POOL)), "", "called BORROW"),
    ("LEND", did(left(USDC, POOL)), "", "called LEND"),
    ("STAKE", did(left(USDC, POOL), came(SHARE, ZERO_ADDRESS)), "", "called STAKE"),
    ("UNSTAKE", did(left(SHARE, POOL)), "", "called UNSTAKE"),
    ("ADDLIQUIDITY", did(left(USDC, POOL), came(SHARE, ZERO_ADDRESS)), "", "called ADDLIQUIDITY"),
    ("REMOVELIQUIDITY", did(left(SHARE, ZERO_ADDRESS), came(USDC, POOL)), "", "called REMOVELIQUIDITY"),
    ("DEPOSIT", did(left(USDC, POOL)), "", "called DEPOSIT"),
    ("CLAIM", did(came(USDC, POOL)), "", "called DEPOSIT"),
    ("WITHDRAW", did(came(USDC, POOL)), "", "called WITHDRAW"),
    ("WITHDRAW", did(left(None, POOL), left(SHARE, ZERO_ADDRESS), by=CALLS_SHARE), "", "called WITHDRAW"),
    ("SWAP", did(left(USDC, POOL)), "", "called SWAP"),
    ("SELFTRANSFER", did(left(USDC, ME), came(USDC, ME)), "", "transfer"),
    ("WRAP", did(left(None, WETH.reference), came(WETH, ZERO_ADDRESS, standard="wrap")), "", "deposit"),
    ("UNWRAP", did(left(WETH, ZERO_ADDRESS, standard="unwrap")), "", "withdraw"),
    ("ADDLIQUIDITY", did(left(USDC, SHARE.reference), left(None, POOL), came(SHARE, ZERO_ADDRESS)), "", "zap"),
    ("REMOVELIQUIDITY", did(left(SHARE, SHARE.reference), came(USDC, POOL), came(None, POOL)), "", "zap"),
    ("REMOVELIQUIDITY", did(), "", "called REMOVELIQUIDITY"),
    (
        "ADDLIQUIDITY",
        did(left(USDC, OTHER), left(None, POOL), came(NFT, ZERO_ADDRESS, **COLLECTIBLE)),
        "",
        "multicall",
    ),
    ("DEPOSIT", did(left(USDC, SHARE.reference), came(SHARE, SHARE.reference)), "", "mint"),
    ("DEPOSIT", did(left(USDC, SHARE.reference), came(SHARE, ZERO_ADDRESS)), "", "deposit"),
    ("WITHDRAW", did(left(SHARE, ZERO_ADDRESS), came(USDC, SHARE.reference)), "", "redeem"),
    ("MINT", did(came(USDC, ZERO_ADDRESS)), "", "mint"),
    ("MINT", did(left(None, POOL), came(NFT, ZERO_ADDRESS, **COLLECTIBLE)), "", "mint"),
    ("SWAP", did(left(USDC, POOL), came(WETH, POOL)), "", "execute"),
    ("TRANSFEROUT", did(left(None), by=PLAIN), "", ""),
    ("TRANSFEROUT", did(left(USDC), by=details(recipient=USDC.reference)), "", "transfer"),
    ("TRANSFEROUT", did(left(USDC), by=BY_OTHER), "", "execTransaction"),
    ("TRANSFERIN", did(came(USDC), by=details(recipient=USDC.reference)), "", "transferFrom"),
    ("TRANSFERIN", did(came(USDC), by=BY_OTHER), "", "transfer"),
    ("APPROVAL", did(allowed=True), "", "approve"),
    ("INTERACTION", did(left(USDC, POOL)), "", "deposit"),
    ("UNDEFINED", did(left(USDC, raw=0), allowed=True, by=BY_OTHER), "", ""),
]


def read(activity: Activity, function: str) -> frozenset[str]:
    """The signs of an example, with what its function stands for."""
    called = function.removeprefix("called ") if function.startswith("called ") else ""
    return signs(
        activity,
        function,
        AddressFacts({SPAM}, {USDC}, EVM.burn_addresses),
        called=called,
        imitated=function == "imitated",
    )


OWN = {path.stem: protocol_of(path, {}, allow_unknown=True) for path in (CONFIGS / "protocols").glob("*.toml")}


def own(protocol: str) -> tuple[Rule, ...]:
    """What the shipped file of a protocol says of its functions."""
    return tuple(each.rule for each in OWN[protocol].transactions) if protocol else ()


@pytest.mark.parametrize("row", range(len(EXAMPLES)))
def test_each_example_is_of_the_type_that_the_first_rule_to_fit_says(row: int) -> None:
    name, activity, protocol, function = EXAMPLES[row]
    assert type_of(read(activity, function), function, own(protocol)) == name


def test_every_rule_has_an_example_that_no_rule_before_it_takes() -> None:
    taken = set()
    for _, activity, protocol, function in EXAMPLES:
        found = read(activity, function)
        taken.add(next(rule for rule in (*FIRST, *own(protocol), *RULES) if rule.fits(found, function)))
    assert taken == {*FIRST, *(rule for protocol in OWN for rule in own(protocol)), *RULES}


@pytest.mark.parametrize(
    ("name", "activity", "protocol", "function"),
    [
        # What a contract was given for nothing may be anything: only a plain payment is a transfer.
        ("INTERACTION", did(left(None, POOL)), "", ""),
        ("INTERACTION", did(left(USDC, POOL), by=details(recipient=USDC.reference)), "", "burn"),
        # The function of one protocol says nothing at another's, nor at nobody's.
        ("INTERACTION", did(left(USDC, POOL)), "convex", "addLiquidity"),
        ("INTERACTION", did(left(USDC, POOL)), "", "swapExactTokensForETH"),
        ("INTERACTION", did(came(SHARE, ZERO_ADDRESS), came(USDC, POOL)), "", "borrow"),
        ("INTERACTION", did(left(USDC, POOL), came(NFT, ZERO_ADDRESS, **COLLECTIBLE)), "", "mint"),
        # A refund makes a swap of less, not no swap.
        ("SWAP", did(left(USDC, POOL, 9), came(USDC, POOL, 2), came(WETH, POOL)), "", ""),
        ("SWAP", did(left(None, POOL), came(NFT, OTHER, **COLLECTIBLE)), "", ""),
        # All that went out came back: nothing moved.
        ("INTERACTION", did(left(USDC, POOL, 9), came(USDC, POOL, 9)), "", ""),
        ("TRANSFERIN", did(came(USDC, ZERO_ADDRESS), by=BY_OTHER), "", "mint"),
        ("SWAP", did(left(WETH, ZERO_ADDRESS, standard="unwrap"), came(USDC, POOL)), "", ""),
        # A function's name alone moves nothing, and a stranger may call his own contract by any name.
        ("INTERACTION", did(), "", "called SWAP"),
        ("INTERACTION", did(), "", "called CLAIM"),
        # Who delegates votes gives nothing away: a function of that name that takes something is another one.
        ("INTERACTION", did(left(None, POOL)), "", "called VOTE"),
        # Shares that went elsewhere, or were burnt by another contract than their own, pay nothing back for certain.
        ("INTERACTION", did(left(SHARE, OTHER), by=CALLS_SHARE), "", "called WITHDRAW"),
        ("INTERACTION", did(left(SHARE, ZERO_ADDRESS)), "", "called WITHDRAW"),
        # A trove may be given more collateral, and a router swaps.
        ("INTERACTION", did(left(None, POOL)), "liquity_v1", "adjustTrove"),
        ("INTERACTION", did(left(USDC, ZERO_ADDRESS), left(None, POOL)), "liquity_v1", "adjustTrove"),
        ("SWAP", did(left(USDC, POOL), came(WETH, POOL)), "uniswap3", "multicall"),
        ("TRANSFERIN", did(came(SHARE), by=BY_OTHER), "", "called CLAIM"),
        ("TRANSFERIN", did(came(SHARE), by=BY_OTHER), "", "called BRIDGEIN"),
        ("TRANSFERIN", did(came(SHARE), by=BY_OTHER), "", "called VOTE"),
        ("SPAM", did(came(SPAM), by=BY_OTHER), "", "called AIRDROP"),
        ("FAILED", did(by=details(failed=True)), "", "called VOTE"),
    ],
)
def test_what_is_not_proven_is_not_named(name: str, activity: Activity, protocol: str, function: str) -> None:
    assert type_of(read(activity, function), function, own(protocol)) == name


def test_a_fee_that_is_a_transfer_of_a_token_says_nothing_of_what_was_done() -> None:
    collector = "0x" + "9" * 40
    fee, mint = left(USDC, collector, 3), came(NFT, ZERO_ADDRESS, **COLLECTIBLE)

    def type_of_(*movements: Movement, by: TransactionDetails | None = None) -> str:
        found = signs(
            did(*movements, by=by), "mint", AddressFacts(burn_addresses=EVM.burn_addresses, fee_collectors={collector})
        )
        return type_of(found, "mint")

    assert type_of_(mint, fee) == "MINT"
    assert type_of_(fee) == "INTERACTION"
    assert type_of_(mint, left(USDC, POOL), fee) == "INTERACTION"  # it also paid with a token
    assert type_of_(left(USDC, collector, 8), came(WETH, POOL), fee) == "SWAP"  # one of the two is the fee
    assert type_of_(fee, by=BY_OTHER) == "TRANSFEROUT"  # who did not send it paid no fee


@pytest.mark.parametrize(("called", "type_"), [("gnosis_bridge", "BRIDGEOUT"), ("aura", "TRANSFEROUT")])
def test_a_transfer_with_a_call_is_what_it_is_to_whom_it_goes(called: str, type_: str) -> None:
    """The token is called, and may be of a protocol itself; the recipient acts."""
    facts = {POOL: ProtocolFacts(called, called, transactions=own(called)), USDC.reference: ProtocolFacts("t", "Token")}
    context = RenderContext(
        ChainFacts("local", "Local", 1),
        Token(ETHER, "ETH", "Ether", 18),
        {},
        protocol_of=facts.get,
        functions=Functions({CALL: "transferAndCall"}),
        burn_addresses=EVM.burn_addresses,
    )
    done = did(left(USDC, POOL), by=details(recipient=USDC.reference))
    assert record(done, context).type == type_
    assert record(did(left(USDC, OTHER), by=details(recipient=USDC.reference)), context).type == "TRANSFEROUT"


def test_an_approval_along_a_transfer_is_a_transfer() -> None:
    activity = did(left(USDC), by=BY_OTHER, allowed=True)
    assert type_of(signs(activity, "transferFrom"), "transferFrom") == "TRANSFEROUT"


@pytest.mark.parametrize(
    ("symbol", "name", "phishing"),
    [
        ("USDC", "USD Coin", False),
        ("CRO", "Crypto.com Coin", False),
        ("Curve", "Curve.fi DAI/USDC/USDT", False),
        ("rETH", "Rocket Pool ETH", False),
        ("", "", False),
        ("$ 1000", "Visit apy-claims.com to claim rewards", True),
        ("t.me/gift", "Gift", True),
        ("ETH", "https://scam.example", True),
        ("usd\u0441", "USD Coin", True),  # its last letter is Cyrillic
        ("ETH\u200b", "Ether", True),
    ],
)
def test_phishing_is_a_link_a_site_that_lures_or_a_name_that_hides(symbol: str, name: str, phishing: bool) -> None:
    assert is_phishing(SHARE, symbol, name) is phishing


# --- records ---------------------------------------------------------------------------------------------------------


def token(asset: Asset, symbol: str, decimals: int | None) -> Token:
    return Token(asset, symbol, f"{symbol} Coin", decimals)


SCENE = RenderContext(
    ChainFacts("local", "Local", 31337),
    Token(ETHER, "ETH", "Ether", 18),
    {
        USDC: token(USDC, "USDC", 6),
        SHARE: token(SHARE, "???", None),
        NFT: token(NFT, "CAT", None),
        SPAM: token(SPAM, "https://gift.example", 0),
    },
    protocol_of=lambda contract: {POOL: ProtocolFacts("aave3", "Aave V3", transactions=own("aave3"))}.get(contract),
    functions=Functions({CALL: "supply"}),
    burn_addresses=EVM.burn_addresses,
)


def test_a_token_without_decimals_has_no_balance_and_a_collectible_is_counted() -> None:
    found = record(did(left(USDC, raw=1_500_000), came(SHARE), came(NFT, **COLLECTIBLE), came(None, raw=10**17)), SCENE)
    shown = [(a.symbol, a.balance, a.decimal) for a in (*found.assets_out, *found.assets_in)]
    assert shown == [("usdc", "1.5", "6"), ("???", "N/A", "N/A"), ("cat", "1", "0"), ("eth", "0.1", "18")]
    assert {(a.price, a.value) for a in (*found.assets_out, *found.assets_in)} == {("N/A", "N/A")}


def shown_asset(asset: Asset, symbol: str, balance: str, decimal: str, ends: tuple[str, str], **more: Any) -> Any:
    unknown = dict.fromkeys(("price", "value", "totalCostBasis", "costBasis", "closedPnl", "priceSource"), "N/A")
    contract = asset.shown_contract
    texts = {"contract": contract, "address": contract, "chainContract": f"local:{contract}", "chainKey": "local"}
    return {
        **unknown,
        **texts,
        "symbol": symbol,
        "name": f"{symbol} coin",
        "balance": balance,
        "decimal": decimal,
        "from": ends[0],
        "to": ends[1],
        "isAssetIn": ends[1] == ME,
        "isNativeAssetFees": False,
        **more,
    }


@pytest.mark.parametrize("link", [{}, {"transaction": "https://scan.example/tx/{hash}"}], ids=["no explorer", "linked"])
def test_a_record_shows_the_transaction_and_what_moved(link: dict[str, str]) -> None:
    there = replace(SCENE, chain=replace(SCENE.chain, explorer=link))
    activity = did(left(USDC, raw=1_500_000), came(NFT, POOL, **COLLECTIBLE), by=replace(details(), raw=2 * 10**18))
    assert msgspec.json.decode(msgspec.json.encode(record(activity, there))) == {
        "hash": activity.tx_hash,
        "timestamp": "1",
        "blockNumber": 7,
        "chain": {"key": "local", "name": "Local"},
        "from": ME,
        "to": POOL,
        "type": "SWAP",
        "value": "2",
        "valueFiat": "N/A",
        "fees": "0.000000000000021",
        "feesFiat": "N/A",
        "nativeAssetFees": shown_asset(
            ETHER, "eth", "0.000000000000021", "18", (ME, ""), name="ether", isNativeAssetFees=True
        ),
        "assetsIn": [shown_asset(NFT, "cat", "1", "0", (POOL, ME), nft={"tokenId": "115"})],
        "assetsOut": [shown_asset(USDC, "usdc", "1.5", "6", (ME, OTHER))],
        "user": {"address": ME},
        "protocol": {"key": "aave3", "name": "Aave V3"},
        "subProtocol": {"key": "", "name": ""},
        "functionName": "Supply",
        "closedPnl": "N/A",
        "flags": [],
        **({"explorerUrl": f"https://scan.example/tx/{activity.tx_hash}"} if link else {}),
    }


def test_payments_of_the_chain_itself_name_its_protocol_and_have_no_link() -> None:
    chain = replace(SCENE.chain, explorer={"transaction": "https://scan.example/tx/{hash}"})
    validators, stakes = ProtocolFacts("beacon", "Beacon"), ProtocolFacts("stake", "Stake")
    there = replace(SCENE, chain=chain, validators=validators, stakes=stakes)
    for payment, protocol, stays in ((paid(9), "beacon", UNSET), (replace(paid(9), standard=REWARD), "stake", True)):
        shown = record(did(payment, by=NOBODYS), there)
        assert (shown.protocol.key, shown.explorer_url, shown.assets_in[0].stays_staked) == (protocol, UNSET, stays)
    created = record(did(by=TransactionDetails(ME, None, SHARE.reference, 0, 0, False, b"")), there)
    assert (created.recipient, created.protocol.key) == (SHARE.reference, "unknown")


def test_prices_of_a_block_give_values_to_coins_and_tokens_and_not_to_collectibles() -> None:
    moved = did(left(USDC, raw=1_500_000), came(SHARE), came(NFT, **COLLECTIBLE), came(SPAM))
    plain = record(replace(moved, details=replace(details(), raw=2 * 10**18, fee=10**18)), SCENE)
    usd = {ETHER: "2000", USDC: "0.5", SHARE: "3", NFT: "7"}
    prices = {asset: Price(asset, Decimal(text), "feed", 0, Decimal(1)) for asset, text in usd.items()}
    priced = with_prices(plain, ETHER, prices)
    assert (priced.value_fiat, priced.fees_fiat) == ("4000", "2000")
    assets = (priced.native_asset_fees, *priced.assets_out, *priced.assets_in)
    assert [(each.symbol, each.price, each.value, each.price_source) for each in assets] == [
        ("eth", "2000", "2000", "feed"),
        ("usdc", "0.5", "0.75", "feed"),
        ("???", "3", "N/A", "feed"),
        ("cat", "N/A", "N/A", "N/A"),
        ("https://gift.example", "N/A", "N/A", "N/A"),
    ]
    assert with_prices(plain, ETHER, {}) == plain


def test_a_record_names_the_protocol_that_was_called_or_met() -> None:
    lent = did(left(USDC, SHARE.reference), came(SHARE, ZERO_ADDRESS))
    assert record(lent, replace(SCENE, functions=Functions({CALL: "supply"}, {CALL: "LEND"}))).type == "LEND"
    called = record(did(left(USDC, OTHER)), SCENE)
    assert (called.protocol.key, called.protocol.name, called.function_name) == ("aave3", "Aave V3", "Supply")
    elsewhere = details(recipient=OTHER, selector=b"\0\0\0\0")
    assert record(did(left(USDC, POOL), by=elsewhere), SCENE).protocol.key == "aave3"
    unknown = record(did(left(USDC, OTHER), by=elsewhere), SCENE)
    assert (unknown.protocol.key, unknown.protocol.name, unknown.function_name) == ("unknown", "Unknown", "")
    assert (unknown.sub_protocol.key, unknown.sub_protocol.name) == ("", "")


def test_a_record_has_pictures_and_links_if_asked_for() -> None:
    explorer = {"token": "https://scan.example/token/{address}", "address": "https://scan.example/address/{address}"}
    images = {USDC: {"small": "https://pictures.example/usdc.png"}}
    chain = replace(
        SCENE.chain, explorer=explorer, images={"large": "https://pictures.example/local.png"}, tokens=images
    )
    there = replace(SCENE, chain=chain, options=Options(images=True, explorer_urls=True))
    activity = did(left(USDC, OTHER), came(None, OTHER), came(NFT, **COLLECTIBLE))
    found = record(activity, there)
    (usdc,), (coin, cat) = found.assets_out, found.assets_in
    assert found.chain.img_small == found.chain.img_large == "https://pictures.example/local.png"
    assert (found.protocol.key, found.protocol.img_small) == ("aave3", drawn("aave3", "Aave V3"))
    assert usdc.img_small == usdc.img_large == "https://pictures.example/usdc.png"
    assert usdc.explorer_url == f"https://scan.example/token/{USDC.reference}"
    assert (coin.img_small, coin.explorer_url) == (
        drawn(coin.chain_contract, "ETH"),
        f"https://scan.example/address/{ME}",
    )
    assert cat.explorer_url == f"https://scan.example/token/{NFT.reference}"
    assert found.native_asset_fees.explorer_url == f"https://scan.example/address/{found.sender}"
    bare = record(activity, replace(there, options=Options()))
    assert b"img" not in msgspec.json.encode(bare)
    assert {each.explorer_url for each in (*bare.assets_in, *bare.assets_out)} == {UNSET}


def test_a_listed_token_is_no_spam_whatever_it_is_called() -> None:
    gift = did(came(SPAM), by=BY_OTHER)
    assert record(gift, SCENE).type == "SPAM"
    assert record(gift, replace(SCENE, trusted=frozenset({SPAM}))).type == "TRANSFERIN"


def test_a_coin_that_the_chain_tells_twice_is_shown_once() -> None:
    there = replace(SCENE, also_at=USDC)
    twice = did(left(None, POOL, 7), left(USDC, OTHER, 7), came(USDC, OTHER, 7), left(USDC, OTHER, 8))
    found = record(twice, there)
    assert [(a.contract, a.recipient) for a in found.assets_out] == [(ZERO_ADDRESS, POOL), (USDC.reference, OTHER)]
    assert len(found.assets_in) == 1, "that of the other direction is told once"
    assert len(record(twice, SCENE).assets_out) == 3


def test_coins_that_a_contract_sent_inside_are_the_native_coin() -> None:
    paid = replace(came(None, POOL, 10**18), standard="internal", log_index=-1, item=1)
    found = record(did(left(USDC, POOL), paid, by=details(recipient=OTHER)), SCENE)
    assert found.type == "SWAP"
    assert [(a.symbol, a.balance, a.contract, a.sender) for a in found.assets_in] == [("eth", "1", ZERO_ADDRESS, POOL)]


def test_text_is_looked_for_in_tokens_that_moved_or_were_allowed() -> None:
    for activity, text, there in [
        (did(left(USDC)), "uSdc c", True),
        (did(left(USDC)), USDC.reference[:12].upper(), True),
        (did(allowed=True), "usdc", True),
        (did(came(None)), "ether", True),
        (did(came(None)), "usdc", False),
        (did(), "eth", False),
    ]:
        assert mentions(activity, SCENE.tokens, SCENE.native, text) is there


@pytest.mark.parametrize("written", ["aave3", "aave_v3", "aave-v3", "Aave V3", "aavev3"])
def test_a_protocol_has_several_spellings(written: str) -> None:
    assert protocol_key(written) == "aave3"
    assert protocol_key("lido") == "lido"


activities = st.builds(
    Activity,
    chain=st.sampled_from(["a", "b"]),
    account=st.sampled_from([ME, OTHER]),
    height=st.integers(0, 3),
    time_us=st.integers(0, 2),
    tx_index=st.integers(0, 2),
    tx_hash=st.sampled_from(["0x1", "0x2"]),
)


@given(st.sets(activities), st.integers(1, 7), st.booleans(), st.randoms())
def test_the_order_is_total_so_pages_join_to_the_whole(
    some: set[Activity], size: int, newest: bool, chance: Any
) -> None:
    shuffled = sorted(some, key=lambda _: chance.random())
    whole = sort_activities(some, newest)
    again = sort_activities(shuffled, newest)
    pages = [again[start : start + size] for start in range(0, len(again), size)]
    assert [each for page in pages for each in page] == whole
    assert [each.time_us for each in whole] == sorted((each.time_us for each in some), reverse=newest)
    assert sort_activities(some, not newest) == whole[::-1]


@pytest.mark.parametrize(
    ("movements", "is_stake"),
    [
        ([left(USDC, POOL)], True),
        ([left(USDC, POOL), came(SHARE, ZERO_ADDRESS)], True),
        ([came(USDC, POOL)], False),
        ([left(USDC), came(WETH), left(SPAM, POOL)], False),
        ([came(SHARE), left(SHARE), left(USDC, POOL)], True),
        ([left(USDC, POOL, 0)], False),
    ],
    ids=["stake", "share", "comes", "sale beside a forged transfer", "passes through", "nothing"],
)
def test_rules_without_functions_are_about_what_left_for_their_contracts(
    movements: list[Movement], is_stake: bool
) -> None:
    rule = Rule("STAKE", frozenset({"loss"}), counterparties=frozenset({POOL}))
    assert rule.is_of_movements(movements, [ZERO_ADDRESS], lambda asset: True) == is_stake


@pytest.mark.parametrize(
    ("movements", "type_", "own_type"),
    [
        ([came(SPAM, POOL)], "TRANSFERIN", "CLAIM"),
        ([came(WETH, POOL, 0), came(USDC, ZERO_ADDRESS)], "TRANSFERIN", "MINT"),
        ([came(WETH, POOL), came(USDC, ZERO_ADDRESS)], "CLAIM", "CLAIM"),
        ([came(WETH, POOL), came(USDC)], "TRANSFERIN", "INTERACTION"),
        ([came(SPAM, POOL), came(USDC)], "TRANSFERIN", "INTERACTION"),
    ],
    ids=["token of the sender", "nothing", "reward", "payment beside a reward", "payment beside a forged reward"],
)
def test_only_what_a_protocol_paid_is_claimed_and_only_in_trusted_tokens_if_others_sent_it(
    movements: list[Movement], type_: str, own_type: str
) -> None:
    claim = Rule("CLAIM", frozenset({"gain"}), counterparties=frozenset({POOL}))
    facts = {POOL: ProtocolFacts("rewards", "Rewards", transactions=(claim,))}
    there = replace(
        SCENE,
        protocol_of=facts.get,
        trusted=frozenset({USDC}),
        is_trusted_contract={WETH.reference}.__contains__,
        tokens={**SCENE.tokens, SPAM: Token(SPAM, "BAIT", "Bait", 18)},
    )
    called = details(recipient=OTHER, selector=b"\0\0\0\0")
    assert record(did(*movements, by=replace(called, sender=OTHER)), there).type == type_
    assert record(did(*movements, by=called), there).type == own_type


def test_a_forged_transfer_to_a_farm_is_no_stake() -> None:
    stake = Rule("STAKE", frozenset({"loss"}), counterparties=frozenset({POOL}))
    facts = {POOL: ProtocolFacts("farm", "Farm", transactions=(stake,))}
    there = replace(SCENE, protocol_of=facts.get, trusted=frozenset({USDC}))
    called = details(sender=OTHER, recipient=OTHER, selector=b"\0\0\0\0")
    types = [record(did(left(token, POOL), by=called), there).type for token in (SHARE, USDC)]
    assert types == ["TRANSFEROUT", "STAKE"]
