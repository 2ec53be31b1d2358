"""Spam tokens with false names, sent to many wallets at once by a stranger."""

from collections.abc import Sequence
from dataclasses import dataclass

from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import Deployment
from chainfolio.localchain.evm import ZERO, Tx, created_address, selector, topic_of, tx, words
from chainfolio.localchain.hostile import GOOD, TRANSFER, gives
from chainfolio.localchain.node import LocalNode

STRANGERS = 30
SPAMMED = ("alice", "bob", "carol", "erin")  # the others have only what they asked for
SENDER = "ivan"


@dataclass(frozen=True)
class PhishingToken:
    """A spam token: its claimed name and symbol, and the balance that it reports for every address."""

    symbol: str
    name: str
    decimals: int
    raw: int


PHISHING_TOKENS = (
    PhishingToken("USDC-GIFT.COM", "Visit usdc-gift.com to claim 1000 USDC", 18, 1_000 * 10**18),
    PhishingToken("USD\u0421", "USD Coin", 6, 50_000 * 10**6),  # the last letter is Cyrillic
    PhishingToken("MOON", "Moon Token", 18, 1_000_000 * 10**18),  # nothing wrong with it but how it came
)


def airdrop(node: LocalNode, deployment: Deployment) -> dict[str, str]:
    """Deploy each spam token and send it to wallets and strangers; return addresses by symbol."""
    sender = deployment.accounts[SENDER]
    nonce = int(node.rpc("eth_getTransactionCount", sender, "pending"), 16)
    lucky = [deployment.accounts[name] for name in SPAMMED] + [f"0x{0xBEEF0000 + n:040x}" for n in range(STRANGERS)]
    addresses: dict[str, str] = {}
    txs: list[Tx] = []
    for token in PHISHING_TOKENS:
        address = addresses[token.symbol] = created_address(sender, nonce + len(txs))
        txs += [_creation(sender, token), _drop(sender, address, deployment.contracts["Multicall3"], lucky, token.raw)]
    node.settle(txs)
    return addresses


def _creation(sender: str, token: PhishingToken) -> Tx:
    """Return the transaction that deploys a hostile contract with the answers of a token."""
    answers = {
        **GOOD,
        "name()": gives("string", token.name),
        "symbol()": gives("string", token.symbol),
        "decimals()": gives("uint8", token.decimals),
        "balanceOf(address)": gives("uint256", token.raw),
    }
    rows = [answer.row(signature) for signature, answer in answers.items()]
    data = artifact("Hostile").creation(words(["(bytes4,uint8,uint256,bytes)[]"], rows))
    return Tx(sender, None, data, gas=4_000_000, label=f"spam {token.symbol}")


def _drop(sender: str, token: str, multicall: str, lucky: Sequence[str], raw: int) -> Tx:
    """Return one transaction in which the token logs a transfer from the zero address to each account."""
    calls = []
    for account in lucky:
        topics = [bytes.fromhex(topic[2:]) for topic in (TRANSFER, topic_of(ZERO), topic_of(account))]
        data = bytes.fromhex(words(["uint256"], raw))
        call = selector("log(bytes32[],bytes)")[2:] + words(["bytes32[]", "bytes"], topics, data)
        calls.append((token, False, bytes.fromhex(call)))
    return tx(sender, multicall, "aggregate3((address,bool,bytes)[])", calls, gas=20_000_000)
