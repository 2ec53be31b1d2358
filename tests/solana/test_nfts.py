"""Collectibles on a real node: sanitised names from Metaplex and Token-2022 metadata, and spam."""

from __future__ import annotations

import struct

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.accounts import describe
from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.layouts import METADATA
from chainfolio.adapters.solana.mints import metadata_address
from chainfolio.adapters.solana.reads import WalletRead
from chainfolio.contracts import Token
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import (
    TOKEN,
    TOKEN_2022,
    account_opening,
    associated_account,
    create_mint,
    create_named_mint,
    send_coins,
    token_issue,
)
from chainfolio.plans import run_batched
from tests.solana.conftest import Run
from tests.solana.test_interfaces import later, run

__all__ = ["run"]  # a fixture
pytestmark = pytest.mark.node
HIDDEN = "\u202eMonke\u200b #7\x07"
RENT = 5_616_720
ATTRIBUTES = '{"name": "Nine", "attributes": [{"trait_type": "Hat", "value": "red"}]}'


def metaplex(of_mint: Pubkey, name: str, symbol: str, key: int = 4) -> bytes:
    """Return metadata as Metaplex's program writes it: texts padded with zeros."""

    def text(value: str, size: int) -> bytes:
        return struct.pack("<I", size) + value.encode().ljust(size, b"\0")

    begin = bytes([key]) + bytes(32) + bytes(of_mint)
    return begin + text(name, 32) + text(symbol, 10) + text("https://one.test/7.json", 200) + bytes(50)


def issue_nft(node: SolanaNode, owner: Pubkey, of_mint: Pubkey, program: Pubkey) -> None:
    """Issue the single unit of a mint to an owner."""
    to = associated_account(owner, of_mint, program)
    node.send([account_opening(node, owner, of_mint, program), token_issue(node, of_mint, to, 1, program)])


def put_metadata(node: SolanaNode, of_mint: Pubkey, content: bytes, owner: str = METADATA) -> None:
    """Write the metadata of a mint, for the program of Metaplex is not here."""
    node.put(Pubkey.from_string(metadata_address(str(of_mint))), owner, content, RENT)


async def token_of(chain: SolanaChain, of_mint: Pubkey) -> Token:
    """Return the token facts that the chain reads for a mint."""
    asset, head = chain.facts.token_asset(str(of_mint)), (await chain.heads()).latest
    reports = await run_batched({"": describe([asset])}, lambda reads: chain.answer(reads, head))
    assert reports[""].result is not None
    token: Token = reports[""].result[asset]
    return token


async def test_a_collectible_is_called_what_its_metadata_say_without_what_is_not_seen(
    node: SolanaNode, chain: SolanaChain
) -> None:
    mint = create_mint(node, 0)
    put_metadata(node, mint, metaplex(mint, HIDDEN, "MNK"))
    token = await token_of(chain, mint)
    assert (token.symbol, token.decimals) == ("MNK", 0)
    assert token.name.isprintable()
    assert "Monke" in token.name


async def test_metadata_of_another_mint_of_another_program_or_cut_off_are_no_name(
    node: SolanaNode, chain: SolanaChain
) -> None:
    other_mint = create_mint(node, 0)
    for content, owner in (
        (metaplex(other_mint, "Monke", "MNK"), METADATA),
        (b"", METADATA),
        (b"\4" * 70, METADATA),
        (metaplex(other_mint, "Monke", "MNK", key=1), METADATA),
        (metaplex(other_mint, "Monke", "MNK"), str(TOKEN_2022)),
    ):
        mint = create_mint(node, 0)
        put_metadata(node, mint, content, owner)
        token = await token_of(chain, mint)
        assert (token.symbol, token.name, token.decimals) == ("", "", 0)


async def test_a_mint_of_token_2022_says_itself_what_it_is_called(node: SolanaNode, chain: SolanaChain) -> None:
    owner, mint = Keypair().pubkey(), create_named_mint(node, "Monke #8", "MNK", "https://one.test/8.json")
    issue_nft(node, owner, mint, TOKEN_2022)
    token = await token_of(chain, mint)
    assert (token.symbol, token.name, token.decimals) == ("MNK", "Monke #8", 0)
    [wallet] = await chain.answer([WalletRead(str(owner))], (await chain.heads()).latest)
    assert wallet.tokens[str(mint)].raw == 1


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_what_nobody_asked_for_and_has_a_link_in_its_name_is_spam(node: SolanaNode, run: Run) -> None:
    wallet = Keypair()
    owner = wallet.pubkey()
    send_coins(node, owner, 10**9)
    lure, plain = (
        create_named_mint(node, "Claim 2 SOL at https://claim.test", "GIFT", ""),
        create_named_mint(node, "Monke #9", "MNK", ""),
    )
    for each in (lure, plain):
        issue_nft(node, owner, each, TOKEN_2022)
    later(node)
    run("watch", str(owner))
    [portfolio] = run("portfolio", str(owner))
    chain = portfolio["assetByProtocols"]["wallet"]["chains"]["solana"]
    assets = {each["contract"]: each for each in chain["protocolPositions"]["WALLET"]["assets"]}
    assert assets[str(lure)]["spam"]["reasons"] == ["LINK", "LURE", "UNSOLICITED", "NO_PRICE"]
    assert (assets[str(plain)]["balance"], assets[str(plain)].get("spam")) == ("1", None)
    assert portfolio["spamAssets"] == 1


def test_collectibles_of_a_wallet_are_listed_with_their_metadata(node: SolanaNode, run: Run) -> None:
    owner, metaplex_mint = Keypair().pubkey(), create_mint(node, 0)
    send_coins(node, owner, 10**9)
    put_metadata(node, metaplex_mint, metaplex(metaplex_mint, "Monke", "MNK"))
    inline = create_named_mint(node, "Monke #9", "MNK", f"data:application/json,{ATTRIBUTES}")
    coin = create_mint(node, 6)
    issue_nft(node, owner, metaplex_mint, TOKEN)
    issue_nft(node, owner, inline, TOKEN_2022)
    issue_nft(node, owner, coin, TOKEN)
    later(node)
    run("watch", str(owner))
    [portfolio] = run("portfolio", str(owner), "--nfts", "--sources")
    found = {each["contractAddress"]: each for each in portfolio["nftsByCollection"].values()}
    assert found.keys() == {str(metaplex_mint), str(inline)}  # the coin has decimals
    assert portfolio["nftsChains"]["solana"]["count"] == "2"
    [first] = found[str(inline)]["items"]
    assert (first["tokenId"], first["balance"], first["name"]) == (str(inline), "1", "Nine")
    assert first["attributes"] == [{"name": "Hat", "value": "red"}]
    assert [call["method"] for call in first["sources"]["calls"]] == ["getTokenAccountsByOwner"]
    [other] = found[str(metaplex_mint)]["items"]
    assert (found[str(metaplex_mint)]["name"], other["metadataUri"]) == ("Monke", "https://one.test/7.json")
    assert "no gateway" in other["metadataProblem"]
