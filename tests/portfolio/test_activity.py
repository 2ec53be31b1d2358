"""Rules of transaction types: an example for each that no earlier rule fits, and the signs they read."""

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


def move_in(
    token: Asset | None, sender: str = OTHER, raw: int = 5, standard: str = "erc20", number: int | None = None
) -> Any:
    return Movement(1, 0, "in", standard if token else "native", thing(token, number), raw, sender)


def move_out(
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


def withdrawn(raw: int) -> Movement:
    """Return a withdrawal of a validator."""
    return Movement(-1, 0, "in", "withdrawal", ETHER, raw, ZERO_ADDRESS)


def minted(raw: int) -> Movement:
    """Return a payment from another chain."""
    return Movement(-1, -1, "in", "mint", ETHER, raw, ZERO_ADDRESS)


NOBODYS = details(sender=ZERO_ADDRESS, recipient=ME, selector=b"")
COLLECTIBLE: Any = {"standard": "erc721", "raw": 1, "number": 115}
BY_OTHER = details(sender=OTHER)
PLAIN = details(recipient=OTHER, selector=b"")
CALLS_SHARE = details(recipient=SHARE.reference)
# Rule by rule: the activity, the protocol that was called and the function.
EXAMPLES: list[tuple[str, Activity, str, str]] = [
    ("UNSTAKE", did(withdrawn(32 * 10**18), by=NOBODYS), "", ""),
    ("COLLECT", did(withdrawn(2 * 10**16), withdrawn(3), by=NOBODYS), "", ""),
    ("BRIDGEIN", did(minted(9)), "", ""),
    ("FAILED", did(by=details(failed=True)), "uniswap2", "addLiquidity"),
    ("SPAM", did(move_out(USDC, raw=0), by=BY_OTHER), "", "transferFrom"),
    ("SPAM", did(move_in(SPAM), by=BY_OTHER), "", "airdrop"),
    ("SPAM", did(move_in(USDC), by=BY_OTHER), "", "imitated"),
    ("LEND", did(move_out(USDC, SHARE.reference), move_in(SHARE, SHARE.reference)), "compound", "mint"),
    ("BORROW", did(move_in(USDC, POOL)), "justlend", "borrow"),
    ("WITHDRAW", did(move_out(SHARE, POOL)), "aave3", "withdrawETH"),
    ("WITHDRAW", did(move_out(SHARE, SHARE.reference), move_in(USDC, SHARE.reference)), "compound", "redeem"),
    ("STAKE", did(move_out(None, SHARE.reference), move_in(SHARE, ZERO_ADDRESS)), "lido", "submit"),
    ("STAKE", did(move_out(None, POOL)), "beacon", "deposit"),
    ("UNSTAKE", did(move_out(SHARE, POOL), move_in(NFT, ZERO_ADDRESS, **COLLECTIBLE)), "lido", "requestWithdrawals"),
    ("DEPOSIT", did(move_out(SHARE, POOL)), "jupiter", "deposit"),
    ("ADDLIQUIDITY", did(move_out(None, POOL), move_in(NFT, ZERO_ADDRESS, **COLLECTIBLE)), "uniswap4", "multicall"),
    ("REPAYVAULT", did(move_out(USDC, ZERO_ADDRESS), move_in(None, POOL)), "liquity_v1", "adjustTrove"),
    ("STAKE", did(move_out(USDC, ZERO_ADDRESS), move_out(None, USDC.reference)), "aura", "lock"),
    ("BRIDGEOUT", did(move_out(USDC, POOL)), "gnosis_bridge", "transferAndCall"),
    ("SWAP", did(move_out(USDC, POOL), move_in(WETH, POOL)), "jupiter", "route"),
    ("DEPOSIT", did(move_out(USDC, POOL)), "jupiter", "initializeOrder"),
    ("WITHDRAW", did(move_in(USDC, POOL)), "jupiter", "cancelOrder"),
    ("INTERACTION", did(move_out(USDC, POOL)), "jupiter", "operate"),
    ("STAKE", did(move_out(None, POOL)), "solana_stake", "initializeStake"),
    ("STAKE", did(), "solana_stake", "delegateStake"),
    ("UNSTAKE", did(move_in(None, POOL)), "solana_stake", "withdrawStake"),
    ("UNSTAKE", did(), "solana_stake", "deactivateStake"),
    # By what the function stands for: `called X`.
    ("VOTE", did(), "", "called VOTE"),
    ("SIGN", did(), "", "called SIGN"),
    ("FOLLOW", did(), "", "called FOLLOW"),
    ("DONATION", did(move_out(None, POOL)), "", "called DONATION"),
    ("EXPENSE", did(move_out(None, POOL, 9), move_in(None, POOL, 2)), "", "called EXPENSE"),
    ("BRIDGEOUT", did(move_out(USDC, POOL)), "", "called BRIDGEOUT"),
    ("BRIDGEIN", did(move_in(USDC, ZERO_ADDRESS), by=BY_OTHER), "", "called BRIDGEIN"),
    ("BRIDGEIN", did(move_in(SHARE, ZERO_ADDRESS)), "", "called BRIDGEIN"),
    ("CLAIM", did(move_in(USDC, POOL), by=BY_OTHER), "", "called CLAIM"),
    ("CLAIM", did(move_in(SHARE, ZERO_ADDRESS)), "", "called CLAIM"),
    ("COLLECT", did(move_in(USDC, POOL)), "", "called COLLECT"),
    ("AIRDROP", did(move_in(SHARE), by=BY_OTHER), "", "called AIRDROP"),
    ("OPENVAULT", did(move_out(None, POOL), move_in(SHARE, ZERO_ADDRESS)), "", "called OPENVAULT"),
    ("CLOSEVAULT", did(move_out(SHARE, ZERO_ADDRESS), move_in(None, POOL)), "", "called CLOSEVAULT"),
    ("REPAYVAULT", did(move_out(USDC, POOL), move_out(SHARE, ZERO_ADDRESS)), "", "called REPAYVAULT"),
    ("BORROW", did(move_in(USDC, POOL)), "", "called BORROW"),
    ("LEND", did(move_out(USDC, POOL)), "", "called LEND"),
    ("STAKE", did(move_out(USDC, POOL), move_in(SHARE, ZERO_ADDRESS)), "", "called STAKE"),
    ("UNSTAKE", did(move_out(SHARE, POOL)), "", "called UNSTAKE"),
    ("ADDLIQUIDITY", did(move_out(USDC, POOL), move_in(SHARE, ZERO_ADDRESS)), "", "called ADDLIQUIDITY"),
    ("REMOVELIQUIDITY", did(move_out(SHARE, ZERO_ADDRESS), move_in(USDC, POOL)), "", "called REMOVELIQUIDITY"),
    ("DEPOSIT", did(move_out(USDC, POOL)), "", "called DEPOSIT"),
    ("CLAIM", did(move_in(USDC, POOL)), "", "called DEPOSIT"),
    ("WITHDRAW", did(move_in(USDC, POOL)), "", "called WITHDRAW"),
    ("WITHDRAW", did(move_out(None, POOL), move_out(SHARE, ZERO_ADDRESS), by=CALLS_SHARE), "", "called WITHDRAW"),
    ("SWAP", did(move_out(USDC, POOL)), "", "called SWAP"),
    ("SELFTRANSFER", did(move_out(USDC, ME), move_in(USDC, ME)), "", "transfer"),
    ("WRAP", did(move_out(None, WETH.reference), move_in(WETH, ZERO_ADDRESS, standard="wrap")), "", "deposit"),
    ("UNWRAP", did(move_out(WETH, ZERO_ADDRESS, standard="unwrap")), "", "withdraw"),
    (
        "ADDLIQUIDITY",
        did(move_out(USDC, SHARE.reference), move_out(None, POOL), move_in(SHARE, ZERO_ADDRESS)),
        "",
        "zap",
    ),
    ("REMOVELIQUIDITY", did(move_out(SHARE, SHARE.reference), move_in(USDC, POOL), move_in(None, POOL)), "", "zap"),
    ("REMOVELIQUIDITY", did(), "", "called REMOVELIQUIDITY"),
    (
        "ADDLIQUIDITY",
        did(move_out(USDC, OTHER), move_out(None, POOL), move_in(NFT, ZERO_ADDRESS, **COLLECTIBLE)),
        "",
        "multicall",
    ),
    ("DEPOSIT", did(move_out(USDC, SHARE.reference), move_in(SHARE, SHARE.reference)), "", "mint"),
    ("DEPOSIT", did(move_out(USDC, SHARE.reference), move_in(SHARE, ZERO_ADDRESS)), "", "deposit"),
    ("WITHDRAW", did(move_out(SHARE, ZERO_ADDRESS), move_in(USDC, SHARE.reference)), "", "redeem"),
    ("MINT", did(move_in(USDC, ZERO_ADDRESS)), "", "mint"),
    ("MINT", did(move_out(None, POOL), move_in(NFT, ZERO_ADDRESS, **COLLECTIBLE)), "", "mint"),
    ("SWAP", did(move_out(USDC, POOL), move_in(WETH, POOL)), "", "execute"),
    ("TRANSFEROUT", did(move_out(None), by=PLAIN), "", ""),
    ("TRANSFEROUT", did(move_out(USDC), by=details(recipient=USDC.reference)), "", "transfer"),
    ("TRANSFEROUT", did(move_out(USDC), by=BY_OTHER), "", "execTransaction"),
    ("TRANSFERIN", did(move_in(USDC), by=details(recipient=USDC.reference)), "", "transferFrom"),
    ("TRANSFERIN", did(move_in(USDC), by=BY_OTHER), "", "transfer"),
    ("APPROVAL", did(allowed=True), "", "approve"),
    ("INTERACTION", did(move_out(USDC, POOL)), "", "deposit"),
    ("UNDEFINED", did(move_out(USDC, raw=0), allowed=True, by=BY_OTHER), "", ""),
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


def protocol_rules(protocol: str) -> tuple[Rule, ...]:
    """Return the rules of functions in the shipped file of a protocol."""
    return tuple(each.rule for each in OWN[protocol].transactions) if protocol else ()


@pytest.mark.parametrize("row", range(len(EXAMPLES)))
def test_each_example_is_of_the_type_that_the_first_rule_to_fit_says(row: int) -> None:
    name, activity, protocol, function = EXAMPLES[row]
    assert type_of(read(activity, function), function, protocol_rules(protocol)) == name


def test_every_rule_has_an_example_that_no_rule_before_it_takes() -> None:
    first_rules = set()
    for _, activity, protocol, function in EXAMPLES:
        call_signs = read(activity, function)
        first_rules.add(
            next(rule for rule in (*FIRST, *protocol_rules(protocol), *RULES) if rule.fits(call_signs, function))
        )
    assert first_rules == {*FIRST, *(rule for protocol in OWN for rule in protocol_rules(protocol)), *RULES}


@pytest.mark.parametrize(
    ("name", "activity", "protocol", "function"),
    [
        # What a contract was given for nothing may be anything: only a plain payment is a transfer.
        ("INTERACTION", did(move_out(None, POOL)), "", ""),
        ("INTERACTION", did(move_out(USDC, POOL), by=details(recipient=USDC.reference)), "", "burn"),
        # A function's meaning in one protocol holds for no other contract.
        ("INTERACTION", did(move_out(USDC, POOL)), "convex", "addLiquidity"),
        ("INTERACTION", did(move_out(USDC, POOL)), "", "swapExactTokensForETH"),
        ("INTERACTION", did(move_in(SHARE, ZERO_ADDRESS), move_in(USDC, POOL)), "", "borrow"),
        ("INTERACTION", did(move_out(USDC, POOL), move_in(NFT, ZERO_ADDRESS, **COLLECTIBLE)), "", "mint"),
        # A refund makes a swap of less, not no swap.
        ("SWAP", did(move_out(USDC, POOL, 9), move_in(USDC, POOL, 2), move_in(WETH, POOL)), "", ""),
        ("SWAP", did(move_out(None, POOL), move_in(NFT, OTHER, **COLLECTIBLE)), "", ""),
        # All that went out came back: nothing moved.
        ("INTERACTION", did(move_out(USDC, POOL, 9), move_in(USDC, POOL, 9)), "", ""),
        ("TRANSFERIN", did(move_in(USDC, ZERO_ADDRESS), by=BY_OTHER), "", "mint"),
        ("SWAP", did(move_out(WETH, ZERO_ADDRESS, standard="unwrap"), move_in(USDC, POOL)), "", ""),
        # A function's name alone moves nothing, and a stranger may call his own contract by any name.
        ("INTERACTION", did(), "", "called SWAP"),
        ("INTERACTION", did(), "", "called CLAIM"),
        # Who delegates votes gives nothing away: a function of that name that takes something is another one.
        ("INTERACTION", did(move_out(None, POOL)), "", "called VOTE"),
        # Shares that went elsewhere, or were burnt by another contract than their own, pay nothing back for certain.
        ("INTERACTION", did(move_out(SHARE, OTHER), by=CALLS_SHARE), "", "called WITHDRAW"),
        ("INTERACTION", did(move_out(SHARE, ZERO_ADDRESS)), "", "called WITHDRAW"),
        # A trove may be given more collateral, and a router swaps.
        ("INTERACTION", did(move_out(None, POOL)), "liquity_v1", "adjustTrove"),
        ("INTERACTION", did(move_out(USDC, ZERO_ADDRESS), move_out(None, POOL)), "liquity_v1", "adjustTrove"),
        ("SWAP", did(move_out(USDC, POOL), move_in(WETH, POOL)), "uniswap3", "multicall"),
        ("TRANSFERIN", did(move_in(SHARE), by=BY_OTHER), "", "called CLAIM"),
        ("TRANSFERIN", did(move_in(SHARE), by=BY_OTHER), "", "called BRIDGEIN"),
        ("TRANSFERIN", did(move_in(SHARE), by=BY_OTHER), "", "called VOTE"),
        ("SPAM", did(move_in(SPAM), by=BY_OTHER), "", "called AIRDROP"),
        ("FAILED", did(by=details(failed=True)), "", "called VOTE"),
    ],
)
def test_what_is_not_proven_is_not_named(name: str, activity: Activity, protocol: str, function: str) -> None:
    assert type_of(read(activity, function), function, protocol_rules(protocol)) == name


def test_a_fee_that_is_a_transfer_of_a_token_says_nothing_of_what_was_done() -> None:
    collector = "0x" + "9" * 40
    fee, mint = move_out(USDC, collector, 3), move_in(NFT, ZERO_ADDRESS, **COLLECTIBLE)

    def type_of_(*movements: Movement, by: TransactionDetails | None = None) -> str:
        call_signs = signs(
            did(*movements, by=by), "mint", AddressFacts(burn_addresses=EVM.burn_addresses, fee_collectors={collector})
        )
        return type_of(call_signs, "mint")

    assert type_of_(mint, fee) == "MINT"
    assert type_of_(fee) == "INTERACTION"
    assert type_of_(mint, move_out(USDC, POOL), fee) == "INTERACTION"  # it also paid with a token
    assert type_of_(move_out(USDC, collector, 8), move_in(WETH, POOL), fee) == "SWAP"  # one of the two is the fee
    assert type_of_(fee, by=BY_OTHER) == "TRANSFEROUT"  # who did not send it paid no fee


@pytest.mark.parametrize(("called", "type_"), [("gnosis_bridge", "BRIDGEOUT"), ("aura", "TRANSFEROUT")])
def test_a_transfer_with_a_call_is_what_it_is_to_whom_it_goes(called: str, type_: str) -> None:
    """The token is called, and may be of a protocol itself; the recipient acts."""
    facts = {
        POOL: ProtocolFacts(called, called, transactions=protocol_rules(called)),
        USDC.reference: ProtocolFacts("t", "Token"),
    }
    context = RenderContext(
        ChainFacts("local", "Local", 1),
        Token(ETHER, "ETH", "Ether", 18),
        {},
        protocol_of=facts.get,
        functions=Functions({CALL: "transferAndCall"}),
        burn_addresses=EVM.burn_addresses,
    )
    activity = did(move_out(USDC, POOL), by=details(recipient=USDC.reference))
    assert record(activity, context).type == type_
    assert record(did(move_out(USDC, OTHER), by=details(recipient=USDC.reference)), context).type == "TRANSFEROUT"


def test_an_approval_along_a_transfer_is_a_transfer() -> None:
    activity = did(move_out(USDC), by=BY_OTHER, allowed=True)
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
    protocol_of=lambda contract: {POOL: ProtocolFacts("aave3", "Aave V3", transactions=protocol_rules("aave3"))}.get(
        contract
    ),
    functions=Functions({CALL: "supply"}),
    burn_addresses=EVM.burn_addresses,
)


def test_a_token_without_decimals_has_no_balance_and_a_collectible_is_counted() -> None:
    document = record(
        did(move_out(USDC, raw=1_500_000), move_in(SHARE), move_in(NFT, **COLLECTIBLE), move_in(None, raw=10**17)),
        SCENE,
    )
    columns = [(a.symbol, a.balance, a.decimal) for a in (*document.assets_out, *document.assets_in)]
    assert columns == [("usdc", "1.5", "6"), ("???", "N/A", "N/A"), ("cat", "1", "0"), ("eth", "0.1", "18")]
    assert {(a.price, a.value) for a in (*document.assets_out, *document.assets_in)} == {("N/A", "N/A")}


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
    context = replace(SCENE, chain=replace(SCENE.chain, explorer=link))
    activity = did(
        move_out(USDC, raw=1_500_000), move_in(NFT, POOL, **COLLECTIBLE), by=replace(details(), raw=2 * 10**18)
    )
    assert msgspec.json.decode(msgspec.json.encode(record(activity, context))) == {
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
    context = replace(SCENE, chain=chain, validators=validators, stakes=stakes)
    for payment, protocol, stays in (
        (withdrawn(9), "beacon", UNSET),
        (replace(withdrawn(9), standard=REWARD), "stake", True),
    ):
        document = record(did(payment, by=NOBODYS), context)
        assert (document.protocol.key, document.explorer_url, document.assets_in[0].stays_staked) == (
            protocol,
            UNSET,
            stays,
        )
    created = record(did(by=TransactionDetails(ME, None, SHARE.reference, 0, 0, False, b"")), context)
    assert (created.recipient, created.protocol.key) == (SHARE.reference, "unknown")


def test_prices_of_a_block_give_values_to_coins_and_tokens_and_not_to_collectibles() -> None:
    activity = did(move_out(USDC, raw=1_500_000), move_in(SHARE), move_in(NFT, **COLLECTIBLE), move_in(SPAM))
    plain = record(replace(activity, details=replace(details(), raw=2 * 10**18, fee=10**18)), SCENE)
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
    lent = did(move_out(USDC, SHARE.reference), move_in(SHARE, ZERO_ADDRESS))
    assert record(lent, replace(SCENE, functions=Functions({CALL: "supply"}, {CALL: "LEND"}))).type == "LEND"
    called = record(did(move_out(USDC, OTHER)), SCENE)
    assert (called.protocol.key, called.protocol.name, called.function_name) == ("aave3", "Aave V3", "Supply")
    elsewhere = details(recipient=OTHER, selector=b"\0\0\0\0")
    assert record(did(move_out(USDC, POOL), by=elsewhere), SCENE).protocol.key == "aave3"
    unknown = record(did(move_out(USDC, OTHER), by=elsewhere), SCENE)
    assert (unknown.protocol.key, unknown.protocol.name, unknown.function_name) == ("unknown", "Unknown", "")
    assert (unknown.sub_protocol.key, unknown.sub_protocol.name) == ("", "")


def test_a_record_has_pictures_and_links_if_asked_for() -> None:
    explorer = {"token": "https://scan.example/token/{address}", "address": "https://scan.example/address/{address}"}
    images = {USDC: {"small": "https://pictures.example/usdc.png"}}
    chain = replace(
        SCENE.chain, explorer=explorer, images={"large": "https://pictures.example/local.png"}, tokens=images
    )
    context = replace(SCENE, chain=chain, options=Options(images=True, explorer_urls=True))
    activity = did(move_out(USDC, OTHER), move_in(None, OTHER), move_in(NFT, **COLLECTIBLE))
    document = record(activity, context)
    (usdc,), (coin, cat) = document.assets_out, document.assets_in
    assert document.chain.img_small == document.chain.img_large == "https://pictures.example/local.png"
    assert (document.protocol.key, document.protocol.img_small) == ("aave3", drawn("aave3", "Aave V3"))
    assert usdc.img_small == usdc.img_large == "https://pictures.example/usdc.png"
    assert usdc.explorer_url == f"https://scan.example/token/{USDC.reference}"
    assert (coin.img_small, coin.explorer_url) == (
        drawn(coin.chain_contract, "ETH"),
        f"https://scan.example/address/{ME}",
    )
    assert cat.explorer_url == f"https://scan.example/token/{NFT.reference}"
    assert document.native_asset_fees.explorer_url == f"https://scan.example/address/{document.sender}"
    bare = record(activity, replace(context, options=Options()))
    assert b"img" not in msgspec.json.encode(bare)
    assert {each.explorer_url for each in (*bare.assets_in, *bare.assets_out)} == {UNSET}


def test_a_listed_token_is_no_spam_whatever_it_is_called() -> None:
    gift = did(move_in(SPAM), by=BY_OTHER)
    assert record(gift, SCENE).type == "SPAM"
    assert record(gift, replace(SCENE, trusted=frozenset({SPAM}))).type == "TRANSFERIN"


def test_a_coin_that_the_chain_tells_twice_is_shown_once() -> None:
    context = replace(SCENE, also_at=USDC)
    activity = did(move_out(None, POOL, 7), move_out(USDC, OTHER, 7), move_in(USDC, OTHER, 7), move_out(USDC, OTHER, 8))
    document = record(activity, context)
    assert [(a.contract, a.recipient) for a in document.assets_out] == [(ZERO_ADDRESS, POOL), (USDC.reference, OTHER)]
    assert len(document.assets_in) == 1, "that of the other direction is told once"
    assert len(record(activity, SCENE).assets_out) == 3


def test_coins_that_a_contract_sent_inside_are_the_native_coin() -> None:
    internal_move = replace(move_in(None, POOL, 10**18), standard="internal", log_index=-1, item=1)
    document = record(did(move_out(USDC, POOL), internal_move, by=details(recipient=OTHER)), SCENE)
    assert document.type == "SWAP"
    assert [(a.symbol, a.balance, a.contract, a.sender) for a in document.assets_in] == [
        ("eth", "1", ZERO_ADDRESS, POOL)
    ]


def test_text_is_looked_for_in_tokens_that_moved_or_were_allowed() -> None:
    for activity, text, is_match in [
        (did(move_out(USDC)), "uSdc c", True),
        (did(move_out(USDC)), USDC.reference[:12].upper(), True),
        (did(allowed=True), "usdc", True),
        (did(move_in(None)), "ether", True),
        (did(move_in(None)), "usdc", False),
        (did(), "eth", False),
    ]:
        assert mentions(activity, SCENE.tokens, SCENE.native, text) is is_match


@pytest.mark.parametrize("spelling", ["aave3", "aave_v3", "aave-v3", "Aave V3", "aavev3"])
def test_a_protocol_has_several_spellings(spelling: str) -> None:
    assert protocol_key(spelling) == "aave3"
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
    activity_set: set[Activity], size: int, newest: bool, chance: Any
) -> None:
    shuffled = sorted(activity_set, key=lambda _: chance.random())
    ordered = sort_activities(activity_set, newest)
    reordered = sort_activities(shuffled, newest)
    pages = [reordered[start : start + size] for start in range(0, len(reordered), size)]
    assert [each for page in pages for each in page] == ordered
    assert [each.time_us for each in ordered] == sorted((each.time_us for each in activity_set), reverse=newest)
    assert sort_activities(activity_set, not newest) == ordered[::-1]


@pytest.mark.parametrize(
    ("movements", "is_stake"),
    [
        ([move_out(USDC, POOL)], True),
        ([move_out(USDC, POOL), move_in(SHARE, ZERO_ADDRESS)], True),
        ([move_in(USDC, POOL)], False),
        ([move_out(USDC), move_in(WETH), move_out(SPAM, POOL)], False),
        ([move_in(SHARE), move_out(SHARE), move_out(USDC, POOL)], True),
        ([move_out(USDC, POOL, 0)], False),
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
        ([move_in(SPAM, POOL)], "TRANSFERIN", "CLAIM"),
        ([move_in(WETH, POOL, 0), move_in(USDC, ZERO_ADDRESS)], "TRANSFERIN", "MINT"),
        ([move_in(WETH, POOL), move_in(USDC, ZERO_ADDRESS)], "CLAIM", "CLAIM"),
        ([move_in(WETH, POOL), move_in(USDC)], "TRANSFERIN", "INTERACTION"),
        ([move_in(SPAM, POOL), move_in(USDC)], "TRANSFERIN", "INTERACTION"),
    ],
    ids=["token of the sender", "nothing", "reward", "payment beside a reward", "payment beside a forged reward"],
)
def test_only_what_a_protocol_paid_is_claimed_and_only_in_trusted_tokens_if_others_sent_it(
    movements: list[Movement], type_: str, own_type: str
) -> None:
    claim = Rule("CLAIM", frozenset({"gain"}), counterparties=frozenset({POOL}))
    facts = {POOL: ProtocolFacts("rewards", "Rewards", transactions=(claim,))}
    context = replace(
        SCENE,
        protocol_of=facts.get,
        trusted=frozenset({USDC}),
        is_trusted_contract={WETH.reference}.__contains__,
        tokens={**SCENE.tokens, SPAM: Token(SPAM, "BAIT", "Bait", 18)},
    )
    called = details(recipient=OTHER, selector=b"\0\0\0\0")
    assert record(did(*movements, by=replace(called, sender=OTHER)), context).type == type_
    assert record(did(*movements, by=called), context).type == own_type


def test_a_forged_transfer_to_a_farm_is_no_stake() -> None:
    stake = Rule("STAKE", frozenset({"loss"}), counterparties=frozenset({POOL}))
    facts = {POOL: ProtocolFacts("farm", "Farm", transactions=(stake,))}
    context = replace(SCENE, protocol_of=facts.get, trusted=frozenset({USDC}))
    called = details(sender=OTHER, recipient=OTHER, selector=b"\0\0\0\0")
    types = [record(did(move_out(token, POOL), by=called), context).type for token in (SHARE, USDC)]
    assert types == ["TRANSFEROUT", "STAKE"]
