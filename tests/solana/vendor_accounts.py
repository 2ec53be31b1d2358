"""Accounts of protocols on Solana as the SDKs of their vendors write them."""

from __future__ import annotations

from typing import Any, Final

from tests.solana.sdk import Small, run_job

RECEIVER: Final = "rec5EKMGg6MxZYaMdyBfgwp4d5rB9T1VQH5pJv5LtFJ"
PUSH: Final = "pythWSnswVUd12oZpeFP8e9CVaEqJg25g1Vtc2biRsT"
FEED: Final = bytes.fromhex("ef0d8b6fda2ceba41da15d4095d1da392a0d2f8ed0c6c7bc0f4cfac8c280b56d")  # SOL/USD
SOL_FEED_AT: Final = "7UVimffxr9ow1uXYxsr4LHAcV58mLzhmwaeKvJ1pjLiE"  # as Pyth's documentation lists it
POOLS: Final = "SPoo1Ku8WFXoNDMHPsrGSTSG1Y47rzgn41SLUNakuHy"
JITO_POOL: Final = "Jito4APyf642JPZPx3hGc6WWJ8zPKtRbRs4P815Awbb"
JITO_MINT: Final = "J1toso1uCk3RLmjorhTtrVwY9HJ7X8V9yYac6Y7kGCPn"
MARINADE: Final = "MarBmsSgKXdrN1egZf5sqe1TMai9K1rChYNDJgjq7aD"
MARINADE_STATE: Final = "8szGkuLTAux9XMgZ2vtY39jVSowEcpBfFfD8hXSEqdGC"
MSOL_MINT: Final = "mSoLzYCxHdYgdzU16g5QSh3i5K3z3KZK7ytfqcJm7So"
NOBODY: Final = "1" * 32
RENT: Final = 2_039_280  # of a token account, in lamports
TICKETED: Final = 10**15


def pyth_bytes(time_s: int, **overrides: Any) -> bytes:
    """An update of Pyth's receiver, by Pyth's own coder: 150.25 USD, half a cent up or down."""
    message = {
        "feedId": FEED,
        "price": 15_025_000_000,
        "conf": 500_000,
        "exponent": Small(-8),
        "publishTime": time_s,
        "prevPublishTime": time_s - 1,
        "emaPrice": 15_000_000_000,
        "emaConf": 500_000,
    }
    level = overrides.pop("verificationLevel", {"full": {}})
    content: bytes = run_job(
        "pyth_price", writeAuthority=NOBODY, verificationLevel=level, priceMessage=message | overrides, postedSlot=299
    )
    return content


def stake_pool_bytes(mint: str, lamports: int, supply: int) -> bytes:
    """A stake pool, by the SDK of SPL."""
    fee = {"denominator": 1000, "numerator": 1}
    none = dict.fromkeys(
        (
            "nextEpochFee",
            "preferredDepositValidatorVoteAddress",
            "preferredWithdrawValidatorVoteAddress",
            "nextStakeWithdrawalFee",
            "solDepositAuthority",
            "solWithdrawAuthority",
            "nextSolWithdrawalFee",
        )
    )
    keys = ("manager", "staker", "stakeDepositAuthority", "validatorList", "reserveStake", "managerFeeAccount")
    fees = ("epochFee", "stakeDepositFee", "stakeWithdrawalFee", "solDepositFee", "solWithdrawalFee")
    content: bytes = run_job(
        "stake_pool",
        accountType=Small(1),
        stakeWithdrawBumpSeed=Small(255),
        poolMint=mint,
        tokenProgramId=NOBODY,
        totalLamports=lamports,
        poolTokenSupply=supply,
        lastUpdateEpoch=700,
        stakeReferralFee=Small(0),
        solReferralFee=Small(0),
        lastEpochPoolTokenSupply=1,
        lastEpochTotalLamports=2,
        lockup={"unixTimestamp": 0, "epoch": 0, "custodian": NOBODY},
        **none,
        **dict.fromkeys(keys, NOBODY),
        **dict.fromkeys(fees, fee),
    )
    return content


def marinade_bytes(price: int, **pool: Any) -> bytes:
    """Return the state of Marinade, encoded with its SDK's interface. `pool` are fields of its pool."""
    items = {"account": NOBODY, "itemSize": Small(1), "count": Small(2), "reserved1": NOBODY, "reserved2": Small(0)}
    fee, cents, small = {"basisPoints": Small(200)}, {"bpCents": Small(30)}, Small(3)
    content: bytes = run_job(
        "marinade",
        account="state",
        msolMint=MSOL_MINT,
        adminAuthority=NOBODY,
        operationalSolAccount=NOBODY,
        treasuryMsolAccount=NOBODY,
        reserveBumpSeed=small,
        msolMintAuthorityBumpSeed=small,
        rentExemptForTokenAcc=RENT,
        rewardFee=fee,
        stakeSystem={
            "stakeList": items,
            "delayedUnstakeCoolingDown": 1,
            "stakeDepositBumpSeed": small,
            "stakeWithdrawBumpSeed": small,
            "slotsForStakeDelta": 1,
            "lastStakeDeltaEpoch": 1,
            "minStake": 1,
            "extraStakeDeltaRuns": small,
        },
        validatorSystem={
            "validatorList": items,
            "managerAuthority": NOBODY,
            "totalValidatorScore": small,
            "totalActiveBalance": 9,
            "autoAddValidatorEnabled": small,
        },
        liqPool={
            "lpMint": NOBODY,
            "lpMintAuthorityBumpSeed": small,
            "solLegBumpSeed": small,
            "msolLegAuthorityBumpSeed": small,
            "msolLeg": NOBODY,
            "lpLiquidityTarget": 1,
            "lpMaxFee": fee,
            "lpMinFee": fee,
            "treasuryCut": fee,
            "lpSupply": 5,
            "lentFromSolLeg": 0,
            "liquiditySolCap": 9,
            **pool,
        },
        availableReserveBalance=11,
        msolSupply=12,
        msolPrice=price,
        circulatingTicketCount=1,
        circulatingTicketBalance=TICKETED,
        lentFromReserve=3,
        minDeposit=4,
        minWithdraw=5,
        stakingSolCap=6,
        emergencyCoolingDown=7,
        pauseAuthority=NOBODY,
        paused=False,
        delayedUnstakeFee=cents,
        withdrawStakeAccountFee=cents,
        withdrawStakeAccountEnabled=True,
        lastStakeMoveEpoch=1,
        stakeMoved=2,
        maxStakeMovedPerEpoch=fee,
        delinquentUpgrader={"done": {}},
        depositSolFee=cents,
        depositStakeAccountFee=cents,
    )
    return content


def ticket_bytes(owner: str, lamports: int, epoch: int, state: str = MARINADE_STATE) -> bytes:
    """A ticket of Marinade, by the same."""
    fields = {"stateAddress": state, "beneficiary": owner, "lamportsAmount": lamports, "createdEpoch": epoch}
    content: bytes = run_job("marinade", account="ticketAccountData", **fields)
    return content
