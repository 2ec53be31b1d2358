"""State of a Tron chain at a block. Its values are immutable, so a copy consists of a few dicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

TRX = 1_000_000  # sun
SLOT_MS = 3_000
DAY_SLOTS = 28_800
FREE_NET = 600  # bytes a day
NET_LIMIT, ENERGY_LIMIT = 43_200_000_000, 180_000_000_000  # of the whole network, a day
# What all others have staked, in TRX: an account's share of the limits is its share of the stakes.
NET_WEIGHT, ENERGY_WEIGHT = 26_000_000_000, 19_000_000_000
REWARD_UNIT = 10**18
KINDS = ("BANDWIDTH", "ENERGY", "TRON_POWER")

Resource = str  # one of KINDS


@dataclass(frozen=True)
class Usage:
    """Usage of a resource as of a slot; it decays to zero within a day."""

    amount: int = 0
    slot: int = 0

    def at(self, slot: int) -> int:
        """Return the remaining usage at a later slot."""
        remaining_slots = self.slot + DAY_SLOTS - slot
        return self.amount * remaining_slots // DAY_SLOTS if remaining_slots > 0 else 0

    def add(self, amount: int, slot: int) -> "Usage":
        """Return the usage at a later slot with an amount added."""
        return Usage(self.at(slot) + amount, slot)


@dataclass(frozen=True)
class Unfreezing:
    """A stake on its way back."""

    resource: Resource
    sun: int
    expires_ms: int


@dataclass(frozen=True)
class Legacy:
    """A stake of the first kind, which can be taken back as a whole."""

    sun: int
    expires_ms: int


@dataclass(frozen=True)
class Permission:
    """A set of keys that may sign for an account."""

    number: int
    name: str
    threshold: int
    keys: Mapping[str, int]  # address -> weight
    operations: str = ""

    def allows(self, contract_type: int) -> bool:
        """Return True if it permits a type of transaction."""
        return not self.operations or bool(bytes.fromhex(self.operations)[contract_type // 8] >> contract_type % 8 & 1)


@dataclass(frozen=True)
class Account:
    """An account; amounts in sun."""

    address: str
    created_ms: int
    balance: int = 0
    kind: str = "Normal"
    name: str = ""
    assets: Mapping[str, int] = field(default_factory=dict)  # TRC-10 id -> raw
    frozen: Mapping[Resource, int] = field(default_factory=dict)  # Stake 2.0, without what is delegated
    unfreezing: tuple[Unfreezing, ...] = ()
    delegated: Mapping[Resource, int] = field(default_factory=dict)
    acquired: Mapping[Resource, int] = field(default_factory=dict)
    legacy: Mapping[Resource, Legacy] = field(default_factory=dict)
    votes: Mapping[str, int] = field(default_factory=dict)  # witness -> TRX
    votes_since: int = 0  # the cycle from which on they earn
    allowance: int = 0
    withdrawn_ms: int = 0
    operated_ms: int = 0
    net: Usage = Usage()
    free_net: Usage = Usage()
    energy: Usage = Usage()
    permissions: tuple[Permission, ...] = ()  # owner, then actives; none: the account itself

    def staked(self, resource: Resource) -> int:
        """Return its stake for a resource in sun, including delegated stake."""
        legacy = self.legacy.get(resource)
        return self.frozen.get(resource, 0) + self.delegated.get(resource, 0) + (legacy.sun if legacy else 0)

    def effective_stake(self, resource: Resource) -> int:
        """Return the stake in sun that works for the account: own and acquired, without delegated stake."""
        return self.staked(resource) - self.delegated.get(resource, 0) + self.acquired.get(resource, 0)

    @property
    def power(self) -> int:
        """Number of votes."""
        return sum(self.staked(kind) for kind in KINDS) // TRX

    def limit(self, resource: Resource) -> int:
        """Return the bandwidth or energy per day that its stake gives."""
        total, weight = (NET_LIMIT, NET_WEIGHT) if resource == KINDS[0] else (ENERGY_LIMIT, ENERGY_WEIGHT)
        return self.effective_stake(resource) // TRX * total // weight


@dataclass(frozen=True)
class Asset:
    """A TRC-10 token."""

    number: str
    owner: str
    name: str
    abbr: str
    precision: int
    supply: int
    url: str
    description: str = ""
    start_ms: int = 0
    end_ms: int = 0


@dataclass(frozen=True)
class Exchange:
    """A pair of the chain's own exchange; `_` is the coin."""

    creator: str
    created_ms: int
    tokens: tuple[str, str]
    balances: tuple[int, int]


@dataclass(frozen=True)
class Witness:
    """A block producer."""

    address: str
    url: str
    votes: int
    brokerage: int = 20
    voter_rewards: int = 0  # by its voters, in this cycle
    rates: tuple[int, ...] = (0,)  # sun times REWARD_UNIT that a vote has earned before each cycle
    produced: int = 0
    newest: int = 0


@dataclass(frozen=True)
class Delegation:
    """A stake whose resource another account uses."""

    sun: int = 0
    locked: int = 0  # of it, until
    until_ms: int = 0


@dataclass
class State:
    """Everything at one block."""

    accounts: dict[str, Account] = field(default_factory=dict)
    assets: dict[str, Asset] = field(default_factory=dict)
    exchanges: dict[int, Exchange] = field(default_factory=dict)
    witnesses: dict[str, Witness] = field(default_factory=dict)
    delegations: dict[tuple[str, str, Resource], Delegation] = field(default_factory=dict)
    contracts: dict[str, dict[str, object]] = field(default_factory=dict)
    cycle: int = 0
    burnt: int = 0
    minted: int = 0

    def copy(self) -> "State":
        """Return a copy for changes."""
        copied = {name: dict(value) for name, value in vars(self).items() if isinstance(value, dict)}
        return replace(self, **copied)  # type: ignore[arg-type]

    def change(self, address: str, **fields: object) -> Account:
        """Replace fields of an account, and return it."""
        self.accounts[address] = changed = replace(self.accounts[address], **fields)  # type: ignore[arg-type]
        return changed

    def give(self, address: str, sun: int) -> None:
        """Add to a balance, or take from it if `sun` is negative; AssertionError if it is too low."""
        balance = self.accounts[address].balance + sun
        assert balance >= 0, f"{address} would have {balance} sun"
        self.change(address, balance=balance)

    def burn(self, address: str, sun: int) -> None:
        """Take a fee from an account and destroy it."""
        self.give(address, -sun)
        self.burnt += sun

    def move_asset(self, owner: str, to: str, number: str, raw: int) -> None:
        """Move a TRC-10 token; AssertionError if the balance is too low."""
        for address, signed in ((owner, -raw), (to, raw)):
            assets = dict(self.accounts[address].assets)
            assets[number] = assets.get(number, 0) + signed
            assert assets[number] >= 0
            self.change(address, assets=assets)

    def pending_reward(self, address: str) -> int:
        """Return the reward of an account's votes since the last settlement, in sun."""
        account = self.accounts[address]
        return sum(
            count
            * (self.witnesses[witness].rates[-1] - self.witnesses[witness].rates[account.votes_since])
            // REWARD_UNIT
            for witness, count in account.votes.items()
            if account.votes_since <= self.cycle
        )

    def settle_reward(self, address: str) -> None:
        """Add the pending reward to the allowance, from which it is withdrawn."""
        reward = self.pending_reward(address)
        self.minted += reward
        account = self.accounts[address]
        self.change(address, allowance=account.allowance + reward, votes_since=max(self.cycle, account.votes_since))

    def pay_voters(self, sun: int) -> None:
        """Share the voters' reward of a block between the witnesses, by votes, after brokerage."""
        total = sum(witness.votes for witness in self.witnesses.values())
        for address, witness in self.witnesses.items():
            share = sun * witness.votes // total
            voter_rewards = witness.voter_rewards + share * (100 - witness.brokerage) // 100
            self.witnesses[address] = replace(witness, voter_rewards=voter_rewards)

    def maintain(self) -> None:
        """End a cycle: turn the voters' rewards into rates, and count the votes that were cast in it."""
        for address, witness in self.witnesses.items():
            rate = witness.rates[-1] + (witness.voter_rewards * REWARD_UNIT // witness.votes if witness.votes else 0)
            votes = witness.votes + sum(
                account.votes.get(address, 0)
                for account in self.accounts.values()
                if account.votes_since == self.cycle + 1
            )
            self.witnesses[address] = replace(witness, rates=(*witness.rates, rate), voter_rewards=0, votes=votes)
        self.cycle += 1
