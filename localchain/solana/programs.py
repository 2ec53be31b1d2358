"""Instructions of Solana's token and stake programs, as their programs read them."""

import hashlib
import struct

from solders.instruction import AccountMeta, Instruction
from solders.keypair import Keypair
from solders.pubkey import Pubkey
from solders.system_program import CreateAccountParams, TransferParams, create_account
from solders.system_program import transfer as pay

from localchain.solana.node import SolanaNode

TOKEN = Pubkey.from_string("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA")
TOKEN_2022 = Pubkey.from_string("TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb")
ASSOCIATED = Pubkey.from_string("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL")
SYSTEM = Pubkey.from_string("11111111111111111111111111111111")
WRAPPED = Pubkey.from_string("So11111111111111111111111111111111111111112")
STAKE = Pubkey.from_string("Stake11111111111111111111111111111111111111")
VOTE = Pubkey.from_string("Vote111111111111111111111111111111111111111")
CLOCK = Pubkey.from_string("SysvarC1ock11111111111111111111111111111111")
MEMO = Pubkey.from_string("MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr")
BUDGET = Pubkey.from_string("ComputeBudget111111111111111111111111111111")
RENT = Pubkey.from_string("SysvarRent111111111111111111111111111111111")
HISTORY = Pubkey.from_string("SysvarStakeHistory1111111111111111111111111")
CONFIG = Pubkey.from_string("StakeConfig11111111111111111111111111111111")
# Of Token-2022's mints: how many bytes an extension takes, and the instruction that makes it (before the mint's own).
FEE, STILL, INTEREST, SCALED = 278, 170, 222, 226
TAKEN, PAUSABLE, SEALED = 202, 203, 235
STILLBORN, HOOKED = 171, 234
STAKE_SIZE = 200
POINTED = 234  # a mint that says where it says what it is called


def coins(node: SolanaNode, to: Pubkey, lamports: int) -> str:
    """The payer gives somebody coins."""
    return node.send([pay(TransferParams(from_pubkey=node.payer.pubkey(), to_pubkey=to, lamports=lamports))])


def paid(giver: Pubkey, taker: Pubkey, lamports: int) -> Instruction:
    """Somebody gives somebody coins."""
    return pay(TransferParams(from_pubkey=giver, to_pubkey=taker, lamports=lamports))


def allocated(node: SolanaNode, new: Keypair, size: int, owner: Pubkey, lamports: int = 0) -> Instruction:
    """A new account for a program."""
    given = lamports or node.rent(size)
    return create_account(
        CreateAccountParams(
            from_pubkey=node.payer.pubkey(), to_pubkey=new.pubkey(), lamports=given, space=size, owner=owner
        )
    )


def extension(node: SolanaNode, mint: Pubkey, size: int, hook: Pubkey = BUDGET) -> Instruction:
    """What makes an extension of a mint: a fee of one per cent, no transfers, five per cent a year, twice as many;
    somebody may take it, transfers can be paused, balances can be confidential, accounts are frozen from the start, a
    program decides on transfers. That of the compute budget agrees to all."""
    own = bytes(node.payer.pubkey())
    content = {
        FEE: bytes([26, 0, 0, 0]) + struct.pack("<HQ", 100, 1_000_000),
        STILL: bytes([32]),
        INTEREST: bytes([33, 0]) + own + struct.pack("<h", 500),
        SCALED: bytes([43, 0]) + own + struct.pack("<d", 2.0),
        TAKEN: bytes([35]) + own,
        PAUSABLE: bytes([44, 0]) + own,
        SEALED: bytes([27, 0]) + own + b"\1" + bytes(32),
        STILLBORN: bytes([28, 0, 2]),
        HOOKED: bytes([36, 0]) + own + bytes(hook),
    }[size]
    return Instruction(TOKEN_2022, content, [AccountMeta(mint, False, True)])


def mint(node: SolanaNode, decimals: int, size: int = 82, hook: Pubkey = BUDGET) -> Pubkey:
    """A new mint: plain, or of Token-2022 with the extension of that size. The payer may issue and freeze."""
    new, program = Keypair(), TOKEN if size == 82 else TOKEN_2022
    own = bytes(node.payer.pubkey())
    begin = Instruction(program, bytes([20, decimals]) + own + b"\1" + own, [AccountMeta(new.pubkey(), False, True)])
    extensions = [extension(node, new.pubkey(), size, hook)] if size != 82 else []
    node.send([allocated(node, new, size, program), *extensions, begin], new)
    return new.pubkey()


def called(node: SolanaNode, name: str, symbol: str, link: str, decimals: int = 0) -> Pubkey:
    """A new mint of Token-2022 that says itself what it is called, and where its picture lies."""
    new, own = Keypair(), node.payer.pubkey()
    at = AccountMeta(new.pubkey(), False, True)
    point = Instruction(TOKEN_2022, bytes([39, 0]) + bytes(own) + bytes(new.pubkey()), [at])
    begin = Instruction(TOKEN_2022, bytes([20, decimals]) + bytes(own) + b"\1" + bytes(own), [at])
    function = hashlib.sha256(b"spl_token_metadata_interface:initialize_account").digest()[:8]
    texts = b"".join(struct.pack("<I", len(each.encode())) + each.encode() for each in (name, symbol, link))
    signer = AccountMeta(own, True, False)
    tell = Instruction(TOKEN_2022, function + texts, [at, AccountMeta(own, False, False), at, signer])
    node.send([allocated(node, new, POINTED, TOKEN_2022, node.rent(POINTED + 512)), point, begin, tell], new)
    return new.pubkey()


def home(owner: Pubkey, of_mint: Pubkey, program: Pubkey = TOKEN) -> Pubkey:
    """Where the tokens of an owner lie, unless they lie elsewhere."""
    return Pubkey.find_program_address([bytes(owner), bytes(program), bytes(of_mint)], ASSOCIATED)[0]


def opened(node: SolanaNode, owner: Pubkey, of_mint: Pubkey, program: Pubkey = TOKEN) -> Instruction:
    """What opens that token account."""
    accounts = [
        AccountMeta(node.payer.pubkey(), True, True), AccountMeta(home(owner, of_mint, program), False, True),
        AccountMeta(owner, False, False), AccountMeta(of_mint, False, False), AccountMeta(SYSTEM, False, False),
        AccountMeta(program, False, False),
    ]  # fmt: skip
    return Instruction(ASSOCIATED, b"\1", accounts)


def second(node: SolanaNode, owner: Pubkey, of_mint: Pubkey) -> tuple[Keypair, list[Instruction]]:
    """Another token account of an owner, and what opens it."""
    new = Keypair()
    accounts = [AccountMeta(new.pubkey(), False, True), AccountMeta(of_mint, False, False)]
    return new, [allocated(node, new, 165, TOKEN), Instruction(TOKEN, b"\x12" + bytes(owner), accounts)]


def issued(node: SolanaNode, of_mint: Pubkey, to: Pubkey, raw: int, program: Pubkey = TOKEN) -> Instruction:
    """The payer issues tokens into a token account."""
    accounts = [
        AccountMeta(of_mint, False, True), AccountMeta(to, False, True), AccountMeta(node.payer.pubkey(), True, False),
    ]  # fmt: skip
    return Instruction(program, b"\7" + struct.pack("<Q", raw), accounts)


def sent(
    of_mint: Pubkey, source: Pubkey, to: Pubkey, owner: Pubkey, raw: int, decimals: int, program: Pubkey = TOKEN
) -> Instruction:
    """An owner sends tokens from one token account to another."""
    accounts = [
        AccountMeta(source, False, True), AccountMeta(of_mint, False, False), AccountMeta(to, False, True),
        AccountMeta(owner, True, False),
    ]  # fmt: skip
    return Instruction(program, b"\x0c" + struct.pack("<QB", raw, decimals), accounts)


def thawed(node: SolanaNode, of_mint: Pubkey, account: Pubkey) -> Instruction:
    """The payer lets a token account of Token-2022 be used that was frozen."""
    return Instruction(TOKEN_2022, b"\x0b", frozen(node, of_mint, account).accounts)


def frozen(node: SolanaNode, of_mint: Pubkey, account: Pubkey) -> Instruction:
    """The payer freezes a token account."""
    accounts = [
        AccountMeta(account, False, True), AccountMeta(of_mint, False, False),
        AccountMeta(node.payer.pubkey(), True, False),
    ]  # fmt: skip
    return Instruction(TOKEN, b"\x0a", accounts)


def closed(account: Pubkey, owner: Pubkey) -> Instruction:
    """An owner closes a token account; its rent goes to the owner."""
    accounts = [AccountMeta(account, False, True), AccountMeta(owner, False, True), AccountMeta(owner, True, False)]
    return Instruction(TOKEN, b"\x09", accounts)


def wrapped(node: SolanaNode, owner: Pubkey, lamports: int) -> str:
    """The payer puts coins into somebody's account of wrapped coins."""
    to = home(owner, WRAPPED)
    given = pay(TransferParams(from_pubkey=node.payer.pubkey(), to_pubkey=to, lamports=lamports))
    counted = Instruction(TOKEN, b"\x11", [AccountMeta(to, False, True)])
    return node.send([opened(node, owner, WRAPPED), given, counted])


def voter(node: SolanaNode) -> Pubkey:
    """A new vote account."""
    validator, vote = Keypair(), Keypair()
    own = bytes(node.payer.pubkey())
    accounts = [
        AccountMeta(vote.pubkey(), False, True), AccountMeta(RENT, False, False), AccountMeta(CLOCK, False, False),
        AccountMeta(validator.pubkey(), True, False),
    ]  # fmt: skip
    begin = Instruction(VOTE, struct.pack("<I", 0) + bytes(validator.pubkey()) + own * 2 + b"\5", accounts)
    node.send([allocated(node, vote, 3762, VOTE), begin], vote, validator)
    return vote.pubkey()


def unstaked(stake: Pubkey, owner: Pubkey, lamports: int, to: Pubkey | None = None) -> Instruction:
    """An owner takes coins out of a stake account, for somebody."""
    accounts = [
        AccountMeta(stake, False, True), AccountMeta(to or owner, False, True), AccountMeta(CLOCK, False, False),
        AccountMeta(HISTORY, False, False), AccountMeta(owner, True, False),
    ]  # fmt: skip
    return Instruction(STAKE, struct.pack("<IQ", 4, lamports), accounts)


def stake(
    node: SolanaNode,
    owner: Pubkey,
    lamports: int,
    vote: Pubkey | None,
    unlock_s: int = 0,
    staker: Keypair | None = None,
) -> Pubkey:
    """A new stake account that somebody may withdraw from; delegated, where there is whom to. The payer decides over
    the delegation, or who is named."""
    new, by = Keypair(), staker or node.payer
    begin = struct.pack("<I", 0) + bytes(by.pubkey()) + bytes(owner) + struct.pack("<qQ", unlock_s, 0)
    steps = [
        allocated(node, new, STAKE_SIZE, STAKE, lamports),
        Instruction(
            STAKE, begin + bytes(node.payer.pubkey()),
            [AccountMeta(new.pubkey(), False, True), AccountMeta(RENT, False, False)],
        ),
    ]  # fmt: skip
    if vote is not None:
        accounts = [
            AccountMeta(new.pubkey(), False, True), AccountMeta(vote, False, False), AccountMeta(CLOCK, False, False),
            AccountMeta(HISTORY, False, False), AccountMeta(CONFIG, False, False),
            AccountMeta(by.pubkey(), True, False),
        ]  # fmt: skip
        steps.append(Instruction(STAKE, struct.pack("<I", 2), accounts))
    node.send(steps, new, *([staker] if staker else []))
    return new.pubkey()


def split(node: SolanaNode, stake: Pubkey, staker: Keypair, lamports: int) -> Pubkey:
    """A part of a stake account becomes one of its own."""
    new = Keypair()
    accounts = [
        AccountMeta(stake, False, True), AccountMeta(new.pubkey(), False, True),
        AccountMeta(staker.pubkey(), True, False),
    ]  # fmt: skip
    parted = Instruction(STAKE, struct.pack("<IQ", 3, lamports), accounts)
    node.send([allocated(node, new, STAKE_SIZE, STAKE), parted], new, staker)
    return new.pubkey()


def merged(into: Pubkey, stake: Pubkey, staker: Pubkey) -> Instruction:
    """A stake account becomes a part of another one, and ends."""
    accounts = [
        AccountMeta(into, False, True), AccountMeta(stake, False, True), AccountMeta(CLOCK, False, False),
        AccountMeta(HISTORY, False, False), AccountMeta(staker, True, False),
    ]  # fmt: skip
    return Instruction(STAKE, struct.pack("<I", 7), accounts)


def given_away(stake: Pubkey, owner: Pubkey, to: Pubkey) -> Instruction:
    """Somebody else may withdraw from a stake account from now on."""
    accounts = [AccountMeta(stake, False, True), AccountMeta(CLOCK, False, False), AccountMeta(owner, True, False)]
    return Instruction(STAKE, struct.pack("<I", 1) + bytes(to) + struct.pack("<I", 1), accounts)


def given_up(stake: Pubkey, staker: Pubkey) -> Instruction:
    """The delegation of a stake account ends."""
    accounts = [AccountMeta(stake, False, True), AccountMeta(CLOCK, False, False), AccountMeta(staker, True, False)]
    return Instruction(STAKE, struct.pack("<I", 5), accounts)
