"""Instructions of Solana's token and stake programs, as their programs read them."""

import hashlib
import struct

from solana.constants import STAKE_PROGRAM_ID as STAKE
from solana.constants import VOTE_PROGRAM_ID as VOTE
from solders import compute_budget
from solders.instruction import AccountMeta, Instruction
from solders.keypair import Keypair
from solders.pubkey import Pubkey
from solders.system_program import CreateAccountParams, TransferParams, create_account
from solders.system_program import transfer as pay
from solders.sysvar import CLOCK, RENT
from solders.sysvar import STAKE_HISTORY as HISTORY
from spl.token import instructions as token
from spl.token import models
from spl.token.constants import ACCOUNT_LEN, MINT_LEN, TOKEN_2022_PROGRAM_ID, TOKEN_PROGRAM_ID, WRAPPED_SOL_MINT

from chainfolio.localchain.solana.node import SolanaNode

TOKEN, TOKEN_2022, WRAPPED = TOKEN_PROGRAM_ID, TOKEN_2022_PROGRAM_ID, WRAPPED_SOL_MINT
BUDGET = compute_budget.ID
CONFIG = Pubkey.from_string("StakeConfig11111111111111111111111111111111")
# Of Token-2022's mints: how many bytes an extension takes, and the instruction that makes it (before the mint's own).
FEE, STILL, INTEREST, SCALED = 278, 170, 222, 226
TAKEN, PAUSABLE, SEALED = 202, 203, 235
STILLBORN, HOOKED = 171, 234
STAKE_SIZE = 200
POINTED = 234  # a mint that says where it says what it is called


def send_coins(node: SolanaNode, to: Pubkey, lamports: int) -> str:
    """Send coins of the payer; return the signature."""
    return node.send([pay(TransferParams(from_pubkey=node.payer.pubkey(), to_pubkey=to, lamports=lamports))])


def coin_transfer(giver: Pubkey, taker: Pubkey, lamports: int) -> Instruction:
    """Return the instruction that transfers coins."""
    return pay(TransferParams(from_pubkey=giver, to_pubkey=taker, lamports=lamports))


def account_creation(node: SolanaNode, new: Keypair, size: int, owner: Pubkey, lamports: int = 0) -> Instruction:
    """Return the instruction that creates an account of a program, with the minimum balance by default."""
    balance = lamports or node.rent(size)
    return create_account(
        CreateAccountParams(
            from_pubkey=node.payer.pubkey(), to_pubkey=new.pubkey(), lamports=balance, space=size, owner=owner
        )
    )


def extension(node: SolanaNode, mint: Pubkey, size: int, hook: Pubkey = BUDGET) -> Instruction:
    """Return the instruction that initialises the extension of a mint that has this size.

    FEE takes one per cent, STILL forbids transfers, INTEREST is five per cent a year, SCALED doubles displayed amounts,
    TAKEN has a permanent delegate, PAUSABLE can be paused, SEALED allows confidential balances, STILLBORN freezes new
    accounts, HOOKED calls the program `hook`. The default hook, the compute budget, accepts all transfers.
    """
    authority = bytes(node.payer.pubkey())
    content = {
        FEE: bytes([26, 0, 0, 0]) + struct.pack("<HQ", 100, 1_000_000),
        STILL: bytes([32]),
        INTEREST: bytes([33, 0]) + authority + struct.pack("<h", 500),
        SCALED: bytes([43, 0]) + authority + struct.pack("<d", 2.0),
        TAKEN: bytes([35]) + authority,
        PAUSABLE: bytes([44, 0]) + authority,
        SEALED: bytes([27, 0]) + authority + b"\1" + bytes(32),
        STILLBORN: bytes([28, 0, 2]),
        HOOKED: bytes([36, 0]) + authority + bytes(hook),
    }[size]
    return Instruction(TOKEN_2022, content, [AccountMeta(mint, False, True)])


def create_mint(node: SolanaNode, decimals: int, size: int = MINT_LEN, hook: Pubkey = BUDGET) -> Pubkey:
    """Create a plain mint, or one of Token-2022 with the extension of that size; return its address.

    The payer is its authority.
    """
    new, program = Keypair(), TOKEN if size == MINT_LEN else TOKEN_2022
    extensions = [extension(node, new.pubkey(), size, hook)] if size != MINT_LEN else []
    begin = _initialize_mint(node, new.pubkey(), decimals, program)
    node.send([account_creation(node, new, size, program), *extensions, begin], new)
    return new.pubkey()


def _initialize_mint(node: SolanaNode, new: Pubkey, decimals: int, program: Pubkey) -> Instruction:
    authority = node.payer.pubkey()
    return token.initialize_mint(
        models.InitializeMintParams(
            decimals=decimals, program_id=program, mint=new, mint_authority=authority, freeze_authority=authority
        )
    )


def create_named_mint(node: SolanaNode, name: str, symbol: str, link: str, decimals: int = 0) -> Pubkey:
    """Create a mint of Token-2022 that stores its name, symbol and link itself; return its address."""
    new, authority = Keypair(), node.payer.pubkey()
    at = AccountMeta(new.pubkey(), False, True)
    point = Instruction(TOKEN_2022, bytes([39, 0]) + bytes(authority) + bytes(new.pubkey()), [at])
    begin = _initialize_mint(node, new.pubkey(), decimals, TOKEN_2022)
    function = hashlib.sha256(b"spl_token_metadata_interface:initialize_account").digest()[:8]
    texts = b"".join(struct.pack("<I", len(each.encode())) + each.encode() for each in (name, symbol, link))
    signer = AccountMeta(authority, True, False)
    set_metadata = Instruction(TOKEN_2022, function + texts, [at, AccountMeta(authority, False, False), at, signer])
    node.send(
        [account_creation(node, new, POINTED, TOKEN_2022, node.rent(POINTED + 512)), point, begin, set_metadata], new
    )
    return new.pubkey()


def associated_account(owner: Pubkey, of_mint: Pubkey, program: Pubkey = TOKEN) -> Pubkey:
    """Return the address of the associated token account of an owner; it may not exist."""
    return token.get_associated_token_address(owner, of_mint, program)


def account_opening(node: SolanaNode, owner: Pubkey, of_mint: Pubkey, program: Pubkey = TOKEN) -> Instruction:
    """Return the instruction that opens the associated token account of an owner unless it is open."""
    return token.create_idempotent_associated_token_account(node.payer.pubkey(), owner, of_mint, program)


def second_account(node: SolanaNode, owner: Pubkey, of_mint: Pubkey) -> tuple[Keypair, list[Instruction]]:
    """Return the key of another token account of an owner, and the instructions that open it."""
    new = Keypair()
    begin = token.initialize_account(
        models.InitializeAccountParams(program_id=TOKEN, account=new.pubkey(), mint=of_mint, owner=owner)
    )
    return new, [account_creation(node, new, ACCOUNT_LEN, TOKEN), begin]


def token_issue(node: SolanaNode, of_mint: Pubkey, to: Pubkey, raw: int, program: Pubkey = TOKEN) -> Instruction:
    """Return the instruction by which the payer issues tokens into a token account."""
    return token.mint_to(
        models.MintToParams(program_id=program, mint=of_mint, dest=to, mint_authority=node.payer.pubkey(), amount=raw)
    )


def token_transfer(
    of_mint: Pubkey, source: Pubkey, to: Pubkey, owner: Pubkey, raw: int, decimals: int, program: Pubkey = TOKEN
) -> Instruction:
    """Return the instruction by which an owner sends tokens from one token account to another."""
    return token.transfer_checked(
        models.TransferCheckedParams(
            program_id=program, source=source, mint=of_mint, dest=to, owner=owner, amount=raw, decimals=decimals
        )
    )


def thawing(node: SolanaNode, of_mint: Pubkey, account: Pubkey) -> Instruction:
    """Return the instruction by which the payer thaws a token account of Token-2022."""
    return token.thaw_account(
        models.ThawAccountParams(program_id=TOKEN_2022, account=account, mint=of_mint, authority=node.payer.pubkey())
    )


def freezing(node: SolanaNode, of_mint: Pubkey, account: Pubkey) -> Instruction:
    """Return the instruction by which the payer freezes a token account."""
    return token.freeze_account(
        models.FreezeAccountParams(program_id=TOKEN, account=account, mint=of_mint, authority=node.payer.pubkey())
    )


def account_closing(account: Pubkey, owner: Pubkey) -> Instruction:
    """Return the instruction by which an owner closes a token account and receives its rent."""
    return token.close_account(models.CloseAccountParams(program_id=TOKEN, account=account, dest=owner, owner=owner))


def wrap_coins(node: SolanaNode, owner: Pubkey, lamports: int) -> str:
    """Wrap coins of the payer into the wrapped-coin account of an owner; return the signature."""
    to = associated_account(owner, WRAPPED)
    payment = pay(TransferParams(from_pubkey=node.payer.pubkey(), to_pubkey=to, lamports=lamports))
    sync = token.sync_native(models.SyncNativeParams(program_id=TOKEN, account=to))
    return node.send([account_opening(node, owner, WRAPPED), payment, sync])


def create_vote_account(node: SolanaNode) -> Pubkey:
    """Create a vote account and return its address."""
    validator, vote = Keypair(), Keypair()
    authority = bytes(node.payer.pubkey())
    accounts = [
        AccountMeta(vote.pubkey(), False, True),
        AccountMeta(RENT, False, False),
        AccountMeta(CLOCK, False, False),
        AccountMeta(validator.pubkey(), True, False),
    ]
    begin = Instruction(VOTE, struct.pack("<I", 0) + bytes(validator.pubkey()) + authority * 2 + b"\5", accounts)
    node.send([account_creation(node, vote, 3762, VOTE), begin], vote, validator)
    return vote.pubkey()


def stake_withdrawal(stake: Pubkey, owner: Pubkey, lamports: int, to: Pubkey | None = None) -> Instruction:
    """Return the instruction that withdraws coins from a stake account, by default to its owner."""
    accounts = [
        AccountMeta(stake, False, True),
        AccountMeta(to or owner, False, True),
        AccountMeta(CLOCK, False, False),
        AccountMeta(HISTORY, False, False),
        AccountMeta(owner, True, False),
    ]
    return Instruction(STAKE, struct.pack("<IQ", 4, lamports), accounts)


def create_stake(
    node: SolanaNode,
    owner: Pubkey,
    lamports: int,
    vote: Pubkey | None,
    unlock_s: int = 0,
    staker: Keypair | None = None,
) -> Pubkey:
    """Create a stake account and return its address.

    Args:
        node: Its payer pays.
        owner: May withdraw.
        lamports: The balance.
        vote: The vote account to delegate to; None for no delegation.
        unlock_s: Time until which the account is locked, in Unix seconds.
        staker: Controls the delegation; the payer by default.
    """
    new, by = Keypair(), staker or node.payer
    begin = struct.pack("<I", 0) + bytes(by.pubkey()) + bytes(owner) + struct.pack("<qQ", unlock_s, 0)
    steps = [
        account_creation(node, new, STAKE_SIZE, STAKE, lamports),
        Instruction(
            STAKE,
            begin + bytes(node.payer.pubkey()),
            [AccountMeta(new.pubkey(), False, True), AccountMeta(RENT, False, False)],
        ),
    ]
    if vote is not None:
        accounts = [
            AccountMeta(new.pubkey(), False, True),
            AccountMeta(vote, False, False),
            AccountMeta(CLOCK, False, False),
            AccountMeta(HISTORY, False, False),
            AccountMeta(CONFIG, False, False),
            AccountMeta(by.pubkey(), True, False),
        ]
        steps.append(Instruction(STAKE, struct.pack("<I", 2), accounts))
    node.send(steps, new, *([staker] if staker else []))
    return new.pubkey()


def split_stake(node: SolanaNode, stake: Pubkey, staker: Keypair, lamports: int) -> Pubkey:
    """Split a part of a stake account into a new one; return its address."""
    new = Keypair()
    accounts = [
        AccountMeta(stake, False, True),
        AccountMeta(new.pubkey(), False, True),
        AccountMeta(staker.pubkey(), True, False),
    ]
    parted = Instruction(STAKE, struct.pack("<IQ", 3, lamports), accounts)
    node.send([account_creation(node, new, STAKE_SIZE, STAKE), parted], new, staker)
    return new.pubkey()


def stake_merger(into: Pubkey, stake: Pubkey, staker: Pubkey) -> Instruction:
    """Return the instruction that merges a stake account into another one, which closes it."""
    accounts = [
        AccountMeta(into, False, True),
        AccountMeta(stake, False, True),
        AccountMeta(CLOCK, False, False),
        AccountMeta(HISTORY, False, False),
        AccountMeta(staker, True, False),
    ]
    return Instruction(STAKE, struct.pack("<I", 7), accounts)


def withdrawer_change(stake: Pubkey, owner: Pubkey, to: Pubkey) -> Instruction:
    """Return the instruction that transfers the right to withdraw from a stake account."""
    accounts = [AccountMeta(stake, False, True), AccountMeta(CLOCK, False, False), AccountMeta(owner, True, False)]
    return Instruction(STAKE, struct.pack("<I", 1) + bytes(to) + struct.pack("<I", 1), accounts)


def stake_deactivation(stake: Pubkey, staker: Pubkey) -> Instruction:
    """Return the instruction that deactivates a stake account."""
    accounts = [AccountMeta(stake, False, True), AccountMeta(CLOCK, False, False), AccountMeta(staker, True, False)]
    return Instruction(STAKE, struct.pack("<I", 5), accounts)
