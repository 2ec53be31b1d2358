"""Actions of wallets: each returns its transactions, or an empty list if it is not possible now."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from chainfolio.localchain.deploy import FOREVER, MINT_POSITION, POOL_FEE, Deployment, Token
from chainfolio.localchain.evm import MAX, Tx, created_address, tx
from chainfolio.localchain.node import LocalNode

DOOMED = "doomed"  # begins the label of a transaction that is meant to fail
TRADED = ("WETH", "USDC", "DAI")  # those with a V2 pair; WETH is in each
VARIABLE = 2  # Aave's interest rate mode
EDITIONS = range(1, 6)


@dataclass
class Scene:
    """State that the wallets share. Balances and positions are read from the chain."""

    node: LocalNode
    deployment: Deployment
    random: Random
    wallets: Mapping[str, str]
    prices: dict[str, int]
    approved: set[tuple[str, str, str]] = field(default_factory=set)  # wallet, token, spender: without limit
    owners: dict[int, str] = field(default_factory=dict)  # of collectibles
    editions: dict[tuple[str, int], int] = field(default_factory=dict)  # wallet, id -> raw

    def contract(self, name: str) -> str:
        """Return the address of a deployed contract by its label."""
        return self.deployment.contracts[name]

    def random_token(self, *symbols: str) -> Token:
        """Return a random one of the tokens with these symbols."""
        return self.deployment.tokens[self.random.choice(symbols)]

    def balance(self, token: str, wallet: str) -> int:
        """Return the balance of a wallet, raw."""
        raw: int = self.node.call(token, "balanceOf(address)(uint256)", wallet)
        return raw

    def random_part(self, token: str, wallet: str, max_permille: int = 20) -> int:
        """Return a random part of a wallet's balance, raw, of 1 to `max_permille` thousandths.

        Zero if the balance is small.
        """
        return self.balance(token, wallet) * self.random.randint(1, max_permille) // 1000

    def other_wallet(self, wallet: str) -> str:
        """Return the address of a random other wallet."""
        return self.random.choice([each for each in self.wallets.values() if each != wallet])

    def allow(self, wallet: str, token: str, spender: str) -> list[Tx]:
        """Return an unlimited approval for a spender; empty if the scene has made one before.

        It is stored in `approved` at once.
        """
        if (wallet, token, spender) in self.approved:
            return []
        self.approved.add((wallet, token, spender))
        return [tx(wallet, token, "approve(address,uint256)", spender, MAX)]


Action = Callable[[Scene, str], list[Tx]]

# --- payments and approvals ------------------------------------------------------------------------------------------


def send_ether(scene: Scene, me: str) -> list[Tx]:
    """Send 0.01 to 5 ether to another wallet, or to an address that was never used before."""
    stranger = created_address(me, scene.random.randrange(1 << 32, 1 << 40))
    to = scene.random.choice([scene.other_wallet(me), stranger])
    return [Tx(me, to, value=scene.random.randint(1, 500) * 10**16, gas=21_000, label="send ether")]


def send_token(scene: Scene, me: str) -> list[Tx]:
    """Transfer up to 2 % of the balance of a random token to another wallet."""
    token = scene.random_token(*scene.deployment.tokens).address
    return [tx(me, token, "transfer(address,uint256)", scene.other_wallet(me), scene.random_part(token, me))]


def pull_token(scene: Scene, me: str) -> list[Tx]:
    """Approve an exact amount of USDC or DAI for another wallet, which takes it by `transferFrom`."""
    token, friend = scene.random_token("USDC", "DAI").address, scene.other_wallet(me)
    raw = scene.random_part(token, me)
    return [
        tx(me, token, "approve(address,uint256)", friend, raw),
        tx(friend, token, "transferFrom(address,address,uint256)", me, friend, raw),
    ]


def allow_a_friend(scene: Scene, me: str) -> list[Tx]:
    """Approve 5, 5000 or unlimited tokens for another wallet, which does not use them."""
    token, friend = scene.random_token("USDC", "DAI", "WBTC"), scene.other_wallet(me)
    raw = scene.random.choice([token.units(5), token.units(5_000), MAX])
    return [tx(me, token.address, "approve(address,uint256)", friend, raw)]


def revoke(scene: Scene, me: str) -> list[Tx]:
    """Set an unlimited approval of the wallet to zero; empty if it has none."""
    approvals = sorted(each for each in scene.approved if each[0] == me)
    if not approvals:
        return []
    _, token, spender = approval = scene.random.choice(approvals)
    scene.approved.discard(approval)
    return [tx(me, token, "approve(address,uint256)", spender, 0)]


def wrap(scene: Scene, me: str) -> list[Tx]:
    """Wrap 0.01 to 3 ether into WETH."""
    return [tx(me, scene.contract("WETH"), "deposit()", value=scene.random.randint(1, 300) * 10**16)]


def unwrap(scene: Scene, me: str) -> list[Tx]:
    """Unwrap up to 2 % of the wallet's WETH."""
    weth = scene.contract("WETH")
    return [tx(me, weth, "withdraw(uint256)", scene.random_part(weth, me))]


# --- Uniswap ---------------------------------------------------------------------------------------------------------


def swap_v2(scene: Scene, me: str) -> list[Tx]:
    """Swap up to 2 % of WETH, USDC or DAI for another one of them, through WETH if neither is WETH."""
    sold, bought = (scene.deployment.tokens[symbol].address for symbol in scene.random.sample(TRADED, 2))
    weth, router = scene.contract("WETH"), scene.contract("UniswapV2Router02")
    path = [sold, bought] if weth in (sold, bought) else [sold, weth, bought]
    signature = "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)"
    swap = tx(me, router, signature, scene.random_part(sold, me), 0, path, me, FOREVER)
    return [*scene.allow(me, sold, router), swap]


def swap_ether_v2(scene: Scene, me: str) -> list[Tx]:
    """Swap 0.01 to 2 ether for USDC or DAI."""
    path = [scene.contract("WETH"), scene.random_token("USDC", "DAI").address]
    value = scene.random.randint(1, 200) * 10**16
    signature = "swapExactETHForTokens(uint256,address[],address,uint256)"
    return [tx(me, scene.contract("UniswapV2Router02"), signature, 0, path, me, FOREVER, value=value)]


def swap_for_ether_v2(scene: Scene, me: str) -> list[Tx]:
    """Swap up to 2 % of USDC or DAI for ether, which arrives by an internal call."""
    sold, router = scene.random_token("USDC", "DAI").address, scene.contract("UniswapV2Router02")
    signature = "swapExactTokensForETH(uint256,uint256,address[],address,uint256)"
    path = [sold, scene.contract("WETH")]
    return [
        *scene.allow(me, sold, router),
        tx(me, router, signature, scene.random_part(sold, me), 0, path, me, FOREVER),
    ]


def swap_v3(scene: Scene, me: str) -> list[Tx]:
    """Swap up to 2 % of WETH for USDC or WBTC in one V3 pool, or the reverse."""
    pair = ["WETH", scene.random.choice(["USDC", "WBTC"])]
    scene.random.shuffle(pair)
    sold, bought = (scene.deployment.tokens[symbol].address for symbol in pair)
    router = scene.contract("SwapRouter")
    signature = "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))"
    order = (sold, bought, POOL_FEE, me, FOREVER, scene.random_part(sold, me), 0, 0)
    return [*scene.allow(me, sold, router), tx(me, router, signature, order)]


def add_liquidity_v2(scene: Scene, me: str) -> list[Tx]:
    """Add up to 2 % of WETH and of USDC or DAI to their pair, at its current price."""
    weth, paired_token = scene.contract("WETH"), scene.random_token("USDC", "DAI").address
    router = scene.contract("UniswapV2Router02")
    signature = "addLiquidity(address,address,uint256,uint256,uint256,uint256,address,uint256)"
    raws = scene.random_part(weth, me), scene.random_part(paired_token, me)
    allowed = [*scene.allow(me, weth, router), *scene.allow(me, paired_token, router)]
    return [*allowed, tx(me, router, signature, weth, paired_token, *raws, 0, 0, me, FOREVER)]


def remove_liquidity_v2(scene: Scene, me: str) -> list[Tx]:
    """Remove up to half of the wallet's shares of a random pair; empty if there are none."""
    symbol = scene.random.choice(["USDC", "DAI"])
    pair, router = scene.contract(f"UniswapV2Pair WETH/{symbol}"), scene.contract("UniswapV2Router02")
    shares = scene.random_part(pair, me, max_permille=500)
    if not shares:
        return []
    signature = "removeLiquidity(address,address,uint256,uint256,uint256,address,uint256)"
    tokens = scene.contract("WETH"), scene.contract(symbol)
    return [*scene.allow(me, pair, router), tx(me, router, signature, *tokens, shares, 0, 0, me, FOREVER)]


def open_position_v3(scene: Scene, me: str) -> list[Tx]:
    """Open a V3 position of WETH and USDC or WBTC, 600 or 6000 ticks around the current price."""
    symbol = scene.random.choice(["USDC", "WBTC"])
    manager, pool = scene.contract("NonfungiblePositionManager"), scene.contract(f"UniswapV3Pool WETH/{symbol}")
    tick = scene.node.call(pool, "slot0()(uint160,int24,uint16,uint16,uint16,uint8,bool)")[1] // 60 * 60
    width = scene.random.choice([600, 6_000])
    tokens = sorted((scene.contract("WETH"), scene.contract(symbol)), key=lambda address: int(address, 16))
    raws = [scene.random_part(token, me) for token in tokens]
    order = (*tokens, POOL_FEE, tick - width, tick + width, *raws, 0, 0, me, FOREVER)
    allowed = [approval for token in tokens for approval in scene.allow(me, token, manager)]
    return [*allowed, tx(me, manager, MINT_POSITION, order)]


def position_v3(scene: Scene, me: str) -> tuple[int, int] | None:
    """Return the id and the liquidity of a random V3 position of a wallet; None if it has none."""
    manager = scene.contract("NonfungiblePositionManager")
    count = scene.balance(manager, me)
    if not count:
        return None
    at = scene.random.randrange(count)
    position = scene.node.call(manager, "tokenOfOwnerByIndex(address,uint256)(uint256)", me, at)
    shape = "uint96,address,address,address,uint24,int24,int24,uint128,uint256,uint256,uint128,uint128"
    return position, scene.node.call(manager, f"positions(uint256)({shape})", position)[7]


def collect_v3(scene: Scene, me: str) -> list[Tx]:
    """Collect the fees of a random V3 position; empty if there is none."""
    owned = position_v3(scene, me)
    return [_collect(scene, me, owned[0])] if owned else []


def close_position_v3(scene: Scene, me: str) -> list[Tx]:
    """Remove half of a position's liquidity, or all of it and burn the NFT; collect either way.

    Empty if the wallet has no position, or if the chosen one has no liquidity.
    """
    owned = position_v3(scene, me)
    if not owned or not owned[1]:
        return []
    position, liquidity = owned
    manager = scene.contract("NonfungiblePositionManager")
    signature = "decreaseLiquidity((uint256,uint128,uint256,uint256,uint256))"
    closes = scene.random.random() < 0.5
    removed = liquidity if closes else (liquidity + 1) // 2
    steps = [tx(me, manager, signature, (position, removed, 0, 0, FOREVER)), _collect(scene, me, position)]
    return [*steps, tx(me, manager, "burn(uint256)", position)] if closes else steps


def _collect(scene: Scene, me: str, position: int) -> Tx:
    manager, max_raw = scene.contract("NonfungiblePositionManager"), 2**128 - 1
    return tx(me, manager, "collect((uint256,address,uint128,uint128))", (position, me, max_raw, max_raw))


# --- Aave ------------------------------------------------------------------------------------------------------------


def supply_aave(scene: Scene, me: str) -> list[Tx]:
    """Lend up to 10 % of a random token, which then counts as collateral."""
    token, pool = scene.random_token(*scene.deployment.tokens).address, scene.contract("Pool")
    supply = tx(
        me, pool, "supply(address,uint256,address,uint16)", token, scene.random_part(token, me, max_permille=100), me, 0
    )
    return [*scene.allow(me, token, pool), supply]


def borrow_aave(scene: Scene, me: str) -> list[Tx]:
    """Borrow a quarter of the remaining limit, at a variable rate; empty if that is zero."""
    _, _, available, _, _, _ = account_aave(scene, me)
    token = scene.random_token("USDC", "DAI", "WETH")
    price = scene.prices["ETH" if token.symbol == "WETH" else token.symbol]
    raw = token.units(available // 4) // price  # both in the feeds' decimals
    if not raw:
        return []
    signature = "borrow(address,uint256,uint256,uint16,address)"
    return [tx(me, scene.contract("Pool"), signature, token.address, raw, VARIABLE, 0, me)]


def repay_aave(scene: Scene, me: str) -> list[Tx]:
    """Repay half of a debt, or all of it with interest; empty if the wallet has less than twice the debt."""
    token, pool = scene.random_token("USDC", "DAI", "WETH"), scene.contract("Pool")
    debt = scene.balance(scene.contract(f"variableDebt{token.symbol}"), me)
    if not debt or scene.balance(token.address, me) < 2 * debt:
        return []
    raw = scene.random.choice([(debt + 1) // 2, MAX])
    repay = tx(me, pool, "repay(address,uint256,uint256,address)", token.address, raw, VARIABLE, me)
    return [*scene.allow(me, token.address, pool), repay]


def withdraw_aave(scene: Scene, me: str) -> list[Tx]:
    """Withdraw up to 10 % of a lent token; empty if nothing is lent, or with a health factor below 1.5."""
    token = scene.random_token(*scene.deployment.tokens)
    raw = scene.random_part(scene.contract(f"a{token.symbol}"), me, max_permille=100)
    *_, health = account_aave(scene, me)
    if not raw or health < 15 * 10**17:
        return []
    return [tx(me, scene.contract("Pool"), "withdraw(address,uint256,address)", token.address, raw, me)]


def account_aave(scene: Scene, me: str) -> tuple[int, int, int, int, int, int]:
    """Return collateral, debt, borrowable value, threshold, loan to value and health factor.

    Values are in the feeds' decimals, ratios in basis points, and the health factor has 18 decimals.
    """
    signature = "getUserAccountData(address)(uint256,uint256,uint256,uint256,uint256,uint256)"
    account: tuple[int, int, int, int, int, int] = scene.node.call(scene.contract("Pool"), signature, me)
    return account


# --- vault, farms ----------------------------------------------------------------------------------------------------


def deposit_vault(scene: Scene, me: str) -> list[Tx]:
    """Deposit up to 2 % of the wallet's DAI into the vault, with an exact approval."""
    dai, vault = scene.contract("DAI"), scene.contract("Vault")
    raw = scene.random_part(dai, me)
    approval = tx(me, dai, "approve(address,uint256)", vault, raw)
    return [approval, tx(me, vault, "deposit(uint256,address)", raw, me)]


def redeem_vault(scene: Scene, me: str) -> list[Tx]:
    """Redeem up to half of the wallet's vault shares; empty if there are none."""
    vault = scene.contract("Vault")
    shares = scene.random_part(vault, me, max_permille=500)
    return [tx(me, vault, "redeem(uint256,address,address)", shares, me, me)] if shares else []


def stake_chef(scene: Scene, me: str) -> list[Tx]:
    """Stake up to half of the wallet's pair shares in MasterChef; empty if there are none."""
    pair, chef = scene.contract("UniswapV2Pair WETH/USDC"), scene.contract("MasterChef")
    shares = scene.random_part(pair, me, max_permille=500)
    stake = tx(me, chef, "deposit(uint256,uint256)", 0, shares)
    return [*scene.allow(me, pair, chef), stake] if shares else []


def leave_chef(scene: Scene, me: str) -> list[Tx]:
    """Withdraw a third of the stake in MasterChef, and all pending rewards; empty without a stake."""
    chef = scene.contract("MasterChef")
    staked, _ = scene.node.call(chef, "userInfo(uint256,address)(uint256,uint256)", 0, me)
    return [tx(me, chef, "withdraw(uint256,uint256)", 0, staked // 3)] if staked else []


def stake_rewards(scene: Scene, me: str) -> list[Tx]:
    """Stake up to half of the wallet's pair shares in StakingRewards; empty if there are none."""
    pair, farm = scene.contract("UniswapV2Pair WETH/USDC"), scene.contract("StakingRewards")
    shares = scene.random_part(pair, me, max_permille=500)
    return [*scene.allow(me, pair, farm), tx(me, farm, "stake(uint256)", shares)] if shares else []


def claim_rewards(scene: Scene, me: str) -> list[Tx]:
    """Claim the rewards of StakingRewards; empty without a stake."""
    farm = scene.contract("StakingRewards")
    return [tx(me, farm, "getReward()")] if scene.balance(farm, me) else []


# --- collectibles ----------------------------------------------------------------------------------------------------


def mint_collectible(scene: Scene, me: str) -> list[Tx]:
    """Mint the next ERC-721 token, from number 1 on, and store its owner in the scene."""
    number = len(scene.owners) + 1
    scene.owners[number] = me
    return [tx(me, scene.contract("Collectible"), "mint(address,uint256)", me, number)]


def send_collectible(scene: Scene, me: str) -> list[Tx]:
    """Send a random ERC-721 token of the wallet to another wallet; empty if it has none."""
    numbers = [number for number, owner in scene.owners.items() if owner == me]
    if not numbers:
        return []
    number, to = scene.random.choice(numbers), scene.other_wallet(me)
    scene.owners[number] = to
    return [tx(me, scene.contract("Collectible"), "safeTransferFrom(address,address,uint256)", me, to, number)]


def allow_collectible(scene: Scene, me: str) -> list[Tx]:
    """Approve another wallet for a random ERC-721 token; empty if the wallet has none."""
    numbers = [number for number, owner in scene.owners.items() if owner == me]
    approve = "approve(address,uint256)"
    collection = scene.contract("Collectible")
    return [tx(me, collection, approve, scene.other_wallet(me), scene.random.choice(numbers))] if numbers else []


def allow_all(scene: Scene, me: str) -> list[Tx]:
    """Approve another wallet for a random collection, or revoke that in three cases of ten."""
    collection = scene.contract(scene.random.choice(["Collectible", "Edition"]))
    allowed = scene.random.random() < 0.7
    return [tx(me, collection, "setApprovalForAll(address,bool)", scene.other_wallet(me), allowed)]


def mint_editions(scene: Scene, me: str) -> list[Tx]:
    """Mint 1 to 20 units of each of one to three ERC-1155 ids; several ids are one batch."""
    ids = scene.random.sample(EDITIONS, scene.random.randint(1, 3))
    raws = [scene.random.randint(1, 20) for _ in ids]
    _move_editions(scene, None, me, dict(zip(ids, raws, strict=True)))
    edition = scene.contract("Edition")
    if len(ids) == 1:
        return [tx(me, edition, "mint(address,uint256,uint256)", me, ids[0], raws[0])]
    return [tx(me, edition, "mintBatch(address,uint256[],uint256[])", me, ids, raws)]


def send_edition(scene: Scene, me: str) -> list[Tx]:
    """Send one unit of a random ERC-1155 id to another wallet; empty if the wallet has none."""
    balances = _held_editions(scene, me)
    if not balances:
        return []
    number, to = scene.random.choice(sorted(balances)), scene.other_wallet(me)
    _move_editions(scene, me, to, {number: 1})
    signature = "safeTransferFrom(address,address,uint256,uint256,bytes)"
    return [tx(me, scene.contract("Edition"), signature, me, to, number, 1, b"")]


def send_editions(scene: Scene, me: str) -> list[Tx]:
    """Send up to three ERC-1155 ids in one batch; empty if the wallet has fewer than two."""
    balances = _held_editions(scene, me)
    if len(balances) < 2:
        return []
    amounts = {number: scene.random.randint(1, balances[number]) for number in sorted(balances)[:3]}
    to = scene.other_wallet(me)
    _move_editions(scene, me, to, amounts)
    signature = "safeBatchTransferFrom(address,address,uint256[],uint256[],bytes)"
    return [tx(me, scene.contract("Edition"), signature, me, to, list(amounts), list(amounts.values()), b"")]


def _held_editions(scene: Scene, me: str) -> dict[int, int]:
    return {number: raw for (owner, number), raw in scene.editions.items() if owner == me and raw}


def _move_editions(scene: Scene, sender: str | None, to: str, raws: Mapping[int, int]) -> None:
    for number, raw in raws.items():
        if sender:
            scene.editions[sender, number] -= raw
        scene.editions[to, number] = scene.editions.get((to, number), 0) + raw


# --- what fails ------------------------------------------------------------------------------------------------------


def overspend(scene: Scene, me: str) -> list[Tx]:
    """Transfer more than the balance; the transaction fails."""
    token = scene.random_token("USDC", "DAI").address
    data = tx(me, token, "transfer(address,uint256)", scene.other_wallet(me), 10**36).data
    return [Tx(me, token, data, gas=100_000, label=f"{DOOMED} transfer")]


def ask_too_much(scene: Scene, me: str) -> list[Tx]:
    """Swap one ether for more than the pool has; the transaction fails, and the ether comes back."""
    path = [scene.contract("WETH"), scene.contract("USDC")]
    router = scene.contract("UniswapV2Router02")
    swap = tx(me, router, "swapExactETHForTokens(uint256,address[],address,uint256)", 10**18, path, me, FOREVER)
    return [Tx(me, router, swap.data, value=10**18, gas=300_000, label=f"{DOOMED} swap")]


def run_out_of_gas(scene: Scene, me: str) -> list[Tx]:
    """Transfer USDC with less gas than that needs; the transaction fails."""
    token = scene.contract("USDC")
    data = tx(me, token, "transfer(address,uint256)", scene.other_wallet(me), 1).data
    return [Tx(me, token, data, gas=24_000, label=f"{DOOMED} out of gas")]
