"""The simulated chain: checks transactions, makes blocks, and removes them on a fork."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any

from chainfolio.localchain.node import GENESIS_TIME
from chainfolio.localchain.tron.blocks import (
    WITNESSES,
    Block,
    Transaction,
    TransactionRejected,
    genesis_transfer,
    read_transaction,
    seal,
)
from chainfolio.localchain.tron.codec import CONTRACTS
from chainfolio.localchain.tron.fees import (
    MANY_SIGNERS,
    MEMO,
    Poor,
    energy_limit,
    pay_bandwidth,
    pay_energy,
)
from chainfolio.localchain.tron.forms import HEX, contract_address, sha256, signer, tron
from chainfolio.localchain.tron.state import SLOT_MS, TRX, Account, Legacy, Permission, State, Witness
from chainfolio.localchain.tron.system_contracts import ACTIONS, Execution, InvalidTransaction, creates_account, do
from chainfolio.localchain.tron.vm import Call, CallOutcome, Machine

MOST_BYTES = 500 * 1024
LONGEST_MS = 86_400_000  # a transaction may not expire later than that
TAPOS = 65_536  # blocks back that a transaction may refer to
VOTERS_SUN = 128 * TRX  # a block's reward for all who voted
MAINTENANCE = 7_200  # blocks of a cycle
SMART = {"TriggerSmartContract", "CreateSmartContract"}


@dataclass
class _Open:
    """A transaction of the block that is being made."""

    transaction: Transaction
    info: dict[str, Any]
    call: Call | None = None
    handed: str = ""


@dataclass
class Chain:
    """A Tron chain that makes blocks on demand.

    The newest `lag` blocks are not solidified; a cycle has `maintenance` blocks.

    `grid`: it is served with `/v1`, as TronGrid does. `balances`: it tells balances at a block, as few nodes do.
    """

    grid: bool = False
    balances: bool = False
    lag: int = 19
    maintenance: int = MAINTENANCE
    genesis_s: int = GENESIS_TIME - GENESIS_TIME % 3
    machine: Machine = field(init=False)
    blocks: list[Block] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    pool: list[Transaction] = field(default_factory=list)
    heights: dict[str, int] = field(default_factory=dict)  # of transactions
    turn: RLock = field(default_factory=RLock)

    def __post_init__(self) -> None:
        self.machine = Machine(self.genesis_s)
        self._clock_ms = self.genesis_s * 1000
        self._pending = State()

    def begin(self) -> None:
        """Start the EVM node, and make the first block."""
        self.machine.start()
        state = State()
        for number, key in enumerate(WITNESSES):
            address = tron(key.public_key.to_address())
            state.accounts[address] = Account(address, self._clock_ms)
            state.witnesses[address] = Witness(address, f"http://witness{number}.test", 1_000_000_000)
        self.states.append(state)
        self._pending = state.copy()
        self.blocks.append(seal(0, "00" * 32, self._clock_ms, (), (), ()))

    # --- what it knows -----------------------------------------------------------------------------------------------

    @property
    def head(self) -> Block:
        """The newest block."""
        return self.blocks[-1]

    @property
    def state(self) -> State:
        """State at the newest block."""
        return self.states[-1]

    @property
    def solid(self) -> int:
        """Height of the newest final block."""
        return max(0, self.head.height - self.lag)

    @property
    def chain_id(self) -> int:
        """Chain id of /jsonrpc: the end of the first block's id."""
        return int(self.blocks[0].id[-8:], 16)

    def reference(self, expires_ms: int = 60_000) -> dict[str, Any]:
        """Return the block reference of a new transaction: `blockHeader` for the official client."""
        block = self.head
        return {
            "ref_block_bytes": f"{block.height % TAPOS:04x}",
            "ref_block_hash": block.id[16:32],
            "expiration": self._clock_ms + expires_ms,
            "timestamp": self._clock_ms,
        }

    # --- control by tests -------------------------------------------------------------------------------------------

    def endow(self, address: str, sun: int, legacy: Mapping[str, Legacy] | None = None) -> None:
        """Give a new account coins and stakes of the first kind, in the first block.

        AssertionError if there are later blocks.
        """
        with self.turn:
            assert not self.head.height, "only the first block can create coins"
            self.state.accounts[address] = Account(address, self._clock_ms, balance=sun, legacy=legacy or {})
            self._pending = self.state.copy()
            transactions = (*self.head.transactions, genesis_transfer(address, sun))
            self.blocks[0] = seal(0, "00" * 32, self._clock_ms, transactions, ("SUCCESS",) * len(transactions), ())

    def wait(self, seconds: int) -> None:
        """Let time pass without blocks, in whole slots of 3 seconds."""
        self._clock_ms += seconds * 1000 // SLOT_MS * SLOT_MS

    def advance(self, blocks: int = 1) -> Block:
        """Make blocks and return the newest; the first one gets the queued transactions.

        Transactions of a sender behind a contract call of the same sender wait for the next block.
        """
        with self.turn:
            for _ in range(blocks):
                self._make()
            return self.head

    def fork(self, height: int, *, final_too: bool = False) -> None:
        """Remove all blocks from a height on and all queued transactions; final blocks need `final_too`."""
        with self.turn:
            assert 0 < height <= self.head.height
            assert final_too or height > self.solid, "solidified blocks stay"
            self.machine.remove_blocks(self.head.height - height + 1, height - 1)
            del self.blocks[height:], self.states[height:]
            self.heights = {txid: at for txid, at in self.heights.items() if at < height}
            self.pool.clear()
            self._pending = self.state.copy()
            self._clock_ms += SLOT_MS  # the other branch was made later, so it has other ids

    # --- transactions -----------------------------------------------------------------------------------------------

    def send(self, signed: Mapping[str, object], visible: bool = False) -> str:
        """Queue a signed transaction in JSON and return its id; TransactionRejected if it is not valid."""
        return self.take(read_transaction(signed, visible))

    def take(self, transaction: Transaction) -> str:
        """Check and queue a transaction, and return its id; TransactionRejected if it is not valid."""
        with self.turn:
            self._check_form(transaction)
            self._check_signatures(transaction)
            trial = self._pending.copy()
            try:
                self._do(trial, transaction, self._clock_ms + SLOT_MS)
            except InvalidTransaction as error:
                raise TransactionRejected("CONTRACT_VALIDATE_ERROR", f"Contract validate error : {error}") from error
            except Poor as error:
                raise TransactionRejected("BANDWITH_ERROR", f"Account resource insufficient error. {error}") from error
            self._pending = trial
            self.pool.append(transaction)
            return transaction.txid

    def _check_form(self, transaction: Transaction) -> None:
        """Raise TransactionRejected for a repeated, large or expired transaction, or a wrong block reference."""
        content = transaction.content
        if transaction.txid in self.heights or any(each.txid == transaction.txid for each in self.pool):
            raise TransactionRejected("DUP_TRANSACTION_ERROR", "Dup transaction.")
        if len(transaction.serialized) > MOST_BYTES:
            raise TransactionRejected("TOO_BIG_TRANSACTION_ERROR", "Transaction size is too big.")
        expires_ms = content.get("expiration", 0)
        if not self.head.time_ms < expires_ms <= self._clock_ms + LONGEST_MS:
            raise TransactionRejected("TRANSACTION_EXPIRATION_ERROR", "Transaction expired")
        referred = int(content.get("ref_block_bytes", "0") or "0", 16)
        height = self.head.height - (self.head.height - referred) % TAPOS
        if height < 0 or self.blocks[height].id[16:32] != content.get("ref_block_hash"):
            raise TransactionRejected("TAPOS_ERROR", "Tapos check error.")

    def _check_signatures(self, transaction: Transaction) -> None:
        """Raise TransactionRejected unless enough keys of the permission have signed, each once."""
        account = self._pending.accounts.get(transaction.owner)
        if not transaction.signatures:
            raise TransactionRejected("SIGERROR", "Validate signature error: miss sig or contract")
        number = transaction.content["contract"][0].get("Permission_id", 0)
        permission = _permission(account, transaction.owner, number)
        if permission is None:
            raise TransactionRejected("SIGERROR", "Validate signature error: permission isn't exit")
        types = {name: at for at, name in CONTRACTS.items()}
        if number and not permission.allows(types[transaction.kind]):
            raise TransactionRejected("SIGERROR", "Validate signature error: permission denied")
        signers = [signer(transaction.txid, signature) for signature in transaction.signatures]
        if len(set(signers)) < len(signers):
            raise TransactionRejected("SIGERROR", "Validate signature error: has signed twice!")
        for each in signers:
            if each not in permission.keys:
                reason = f"{transaction.signatures[0]} is signed by {each} but it is not contained of permission."
                raise TransactionRejected("SIGERROR", f"Validate signature error: {reason}")
        if sum(permission.keys[str(each)] for each in signers) < permission.threshold:
            raise TransactionRejected("SIGERROR", "Validate signature error: Signature count is not enough")

    def _do(self, state: State, transaction: Transaction, now_ms: int) -> _Open:
        """Apply a transaction to the state; contract calls are only prepared, and applied later."""
        owner, value = transaction.owner, transaction.value
        if owner not in state.accounts:
            raise InvalidTransaction(f"account [{owner}] does not exist")
        if not all(HEX.fullmatch(address) for name, address in value.items() if name.endswith("address")):
            raise InvalidTransaction("Invalid address!")
        new = creates_account(state, transaction.kind, value)
        net = pay_bandwidth(state, owner, len(transaction.serialized), new, self.slot(now_ms), now_ms)
        act = Execution(state, now_ms, owner, value)
        for due, sun in ((transaction.content.get("data"), MEMO), (len(transaction.signatures) > 1, MANY_SIGNERS)):
            if due:
                act.burn(sun)
        call = None
        if transaction.kind in SMART:
            call = self._call(act, transaction)
        elif transaction.kind in ACTIONS:
            do(act, transaction.kind)
        else:
            raise InvalidTransaction(f"Not support contract type {transaction.kind}")
        info = {
            "id": transaction.txid,
            "fee": act.fee + net.fee,
            "blockTimeStamp": now_ms,
            "receipt": net.receipt(),
            **act.record,
        }
        return _Open(transaction, info, call)

    def _call(self, act: Execution, transaction: Transaction) -> Call:
        """Check the caller's balance, take the value, and return the call for the machine."""
        if transaction.kind == "CreateSmartContract":
            new = act.value["new_contract"]
            contract, data, sun = (
                contract_address(transaction.txid, act.owner),
                new["bytecode"],
                new.get("call_value", 0),
            )
            act.state.contracts[contract] = {**new, "contract_address": contract, "origin_address": act.owner}
            act.state.accounts[contract] = Account(contract, act.now_ms, kind="Contract", name=new.get("name", ""))
        else:
            contract, data = act.value["contract_address"], act.value.get("data", "")
            sun = act.value.get("call_value", 0)
            act.require(contract in act.state.contracts, "No contract or not a valid smart contract")
        act.require(act.account.balance >= sun >= 0, "Validate InternalTransfer error, balance is not sufficient.")
        limit = transaction.content.get("fee_limit", 0)
        energy = energy_limit(act.state, act.owner, sun, limit, self.slot(act.now_ms))
        return Call(act.owner, contract, data, sun, energy, code=transaction.kind == "CreateSmartContract")

    def slot(self, now_ms: int) -> int:
        """Return the number of the slot of a time, counted from the first block."""
        return (now_ms - self.genesis_s * 1000) // SLOT_MS

    # --- blocks -----------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        """Make a block of the queued transactions that are still valid; others are dropped.

        Those of a sender with a contract call in the block stay queued.
        """
        self._clock_ms += SLOT_MS
        height, state = self.head.height + 1, self.state.copy()
        opened: list[_Open] = []
        later: list[Transaction] = []
        for transaction in self.pool:
            # What a call costs is known when the block is made: until then its sender does nothing else.
            if any(each.call and each.call.owner == transaction.owner for each in opened):
                later.append(transaction)
                continue
            attempt = state.copy()
            try:
                opened.append(self._do(attempt, transaction, self._clock_ms))
            except (InvalidTransaction, Poor):
                continue  # it is no longer valid, and no block takes it
            state = attempt
            self._queue_call(opened[-1], state)
        self.machine.mine(self._clock_ms // 1000)
        results = [self._apply_outcome(each, state, height) for each in opened]
        state.pay_voters(VOTERS_SUN)
        if height % self.maintenance == 0:
            state.maintain()
        for each in opened:
            each.info["blockNumber"] = height
            self.heights[each.transaction.txid] = height
        transactions = tuple(each.transaction for each in opened)
        infos = tuple(_tidy(each.info) for each in opened)
        self.blocks.append(seal(height, self.head.id, self._clock_ms, transactions, tuple(results), infos))
        self.states.append(state)
        self.pool[:] = later
        self._pending = state.copy()

    def _queue_call(self, each: _Open, state: State) -> None:
        if each.call is not None:
            self.machine.set_balance(each.call.owner, state.accounts[each.call.owner].balance)
            each.handed = self.machine.queue(each.call)

    def _apply_outcome(self, each: _Open, state: State, height: int) -> str:
        """Apply the outcome of a contract call to the state and the record; return the result code."""
        call, info = each.call, each.info
        if call is None:
            info["contractResult"] = [""]
            return "SUCCESS"
        outcome = self.machine.outcome(call, each.handed, height)
        if outcome.result == "SUCCESS":
            self._flow(state, call, outcome)
            for created in outcome.created:
                state.contracts[created] = {
                    "contract_address": created,
                    "origin_address": call.owner,
                    "consume_user_resource_percent": 100,
                }
                state.accounts[created] = replace(state.accounts[created], kind="Contract")
        elif call.code:
            del state.contracts[call.contract], state.accounts[call.contract]
        contract = None if call.code else state.contracts[call.contract]
        receipt = pay_energy(state, call.owner, outcome.energy, contract, self.slot(self._clock_ms))
        info["fee"] += receipt.get("energy_fee", 0)
        info["receipt"] = {**receipt, **info["receipt"], "result": outcome.result}
        info["contractResult"] = [outcome.output]
        info["contract_address"] = call.contract
        info["log"] = outcome.logs
        info["internal_transactions"] = [
            _internal(each.transaction.txid, number, part) for number, part in enumerate(outcome.internal)
        ]
        if outcome.result != "SUCCESS":
            message = "REVERT opcode executed" if outcome.result == "REVERT" else "Not enough energy for operation"
            info |= {"result": "FAILED", "resMessage": message.encode().hex()}
        return outcome.result

    def _flow(self, state: State, call: Call, outcome: CallOutcome) -> None:
        """Move the coins of a call and of its successful internal calls; missing accounts are created."""
        flows = [(call.owner, call.contract, call.value, False), *outcome.internal]
        for source, to, sun, failed in flows:
            if to not in state.accounts and not failed:
                state.accounts[to] = Account(to, self._clock_ms)
            if sun and not failed:
                state.give(source, -sun)
                state.give(to, sun)


def _permission(account: Account | None, owner: str, number: int) -> Permission | None:
    """Return a permission of an account by number, by default that of its key; None if there is none."""
    if account is None or not account.permissions:
        return Permission(number, "owner", 1, {owner: 1}) if number in (0, 2) else None
    return next((each for each in account.permissions if each.number == number), None)


def _internal(txid: str, number: int, part: tuple[str, str, int, bool]) -> dict[str, Any]:
    source, to, sun, failed = part
    record = {
        "hash": sha256(bytes.fromhex(txid) + number.to_bytes(4, "big")).hex(),
        "caller_address": source,
        "transferTo_address": to,
        "callValueInfo": [{"callValue": sun} if sun else {}],
        "note": b"call".hex(),
    }
    return {**record, "rejected": True} if failed else record


def _tidy(info: Mapping[str, object]) -> dict[str, Any]:
    """Return a record without zero and empty fields, as java-tron writes it."""
    return {name: value for name, value in info.items() if value or name in ("receipt", "contractResult")}
