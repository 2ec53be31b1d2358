"""Symbiotic's vaults of both releases, deployed from the code that its authors publish."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from eth_abi.abi import encode

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.localchain.evm import MAX, ZERO
from chainfolio.plans import Reverted
from chainfolio.protocols import DecodedPosition
from tests.protocols.artifact_deployment import DAY, ETH, WEEK, PublishedChain
from tests.protocols.published import Overrides, amounts, exchanged, needs_contracts, positions

pytestmark = needs_contracts
CREATE = "create((uint64,address,bytes,uint64,bytes,bool,uint64,bytes))(address,address,address)"
VAULT = "(address,address,uint48,bool,bool,uint256,address,address,address,address,address)"


class Symbiotic:
    """The factories, and one vault of each release with epochs of a week."""

    def __init__(self, chain: PublishedChain) -> None:
        self.chain = chain
        owner, deploy = chain.owner, chain.deploy
        self.factory, delegators, slashers = (
            deploy(f"symbiotic/{name}", owner) for name in ("VaultFactory", "DelegatorFactory", "SlasherFactory")
        )
        networks, operators = deploy("symbiotic/NetworkRegistry"), deploy("symbiotic/OperatorRegistry")
        opt_ins = [
            deploy("symbiotic/OptInService", operators, registry, name)
            for registry, name in ((self.factory, "OperatorVaultOptIn"), (networks, "OperatorNetworkOptIn"))
        ]
        for name in ("Vault", "VaultTokenized"):
            code = deploy(f"symbiotic/{name}", delegators, slashers, self.factory)
            chain.do(owner, self.factory, "whitelist(address)", code)
        delegator = deploy("symbiotic/FullRestakeDelegator", networks, self.factory, *opt_ins, delegators, 0)
        chain.do(owner, delegators, "whitelist(address)", delegator)
        self.configurator = deploy("symbiotic/VaultConfigurator", self.factory, delegators, slashers)
        self.collateral = chain.token("wstETH", alice=1000 * ETH)
        self.vaults = [self._vault(release) for release in (1, 2)]
        for vault in self.vaults:
            chain.approve(chain.alice, vault, self.collateral)
            chain.do(chain.alice, vault, "deposit(address,uint256)", chain.alice, 100 * ETH)
            chain.do(chain.alice, vault, "withdraw(address,uint256)", chain.alice, 30 * ETH)

    def _vault(self, release: int) -> str:
        owner = self.chain.owner
        base = (self.collateral, "0x" + "00" * 18 + "dead", WEEK, False, False, 0, *[owner] * 5)
        params = encode([VAULT], [base]) if release == 1 else encode([f"({VAULT},string,string)"], [(base, "R", "R")])
        hooks = encode(["((address,address,address),address[],address[])"], [((owner, ZERO, ZERO), [owner], [owner])])
        request = (release, owner, params, 0, hooks, False, 0, b"")
        vault = str(self.chain.read(self.configurator, CREATE, request)[0])
        self.chain.do(owner, self.configurator, CREATE.rpartition("(")[0], request)
        return vault

    def positions(self, vault: str, overrides: Overrides | None = None) -> Sequence[DecodedPosition]:
        """The positions of Alice in a vault that the file names."""
        contracts = {"vault": [vault], "factory": [self.factory]}
        return positions(
            self.chain.outcomes("symbiotic", contracts, self.chain.alice, exchanged(vault), overrides=overrides)
        )


@pytest.fixture(scope="module")
def symbiotic(published_chain: PublishedChain) -> Symbiotic:
    return Symbiotic(published_chain)


@pytest.mark.parametrize("release", [1, 2])
def test_a_withdrawal_is_shown_until_it_is_claimed_and_pays_what_was_shown(symbiotic: Symbiotic, release: int) -> None:
    chain, vault, collateral = symbiotic.chain, symbiotic.vaults[release - 1], symbiotic.collateral
    snapshot = chain.node.rpc("evm_snapshot")
    staked, waiting = symbiotic.positions(vault)
    assert amounts([staked], "supplied") == {collateral: 70 * ETH}
    assert amounts([waiting], "supplied") == {collateral: 30 * ETH}
    assert 0 < waiting.unlock_s - chain.time_s <= 2 * WEEK
    chain.wait(15 * DAY)
    staked, claimable = symbiotic.positions(vault)
    assert amounts([staked, claimable], "supplied") == {collateral: 100 * ETH}
    assert claimable.unlock_s < chain.time_s
    before = chain.balance(collateral, chain.alice)
    chain.do(chain.alice, vault, "claim(address,uint256)", chain.alice, int(claimable.name.split()[-1]))
    assert chain.balance(collateral, chain.alice) - before == 30 * ETH
    assert amounts(symbiotic.positions(vault), "supplied") == {collateral: 70 * ETH}
    chain.node.rpc("evm_revert", snapshot)


def test_the_token_of_the_second_release_is_replaced_by_its_position(symbiotic: Symbiotic) -> None:
    chain, (first, second) = symbiotic.chain, symbiotic.vaults
    touched = ContractInteractions(tokens=frozenset({second}))
    vault_positions = positions(chain.outcomes("symbiotic", {"factory": [symbiotic.factory]}, chain.alice, touched))
    assert vault_positions == symbiotic.positions(second)
    assert vault_positions[0].replaces == (second,)
    assert first != second


def test_a_vault_that_the_factory_does_not_know_is_no_position(symbiotic: Symbiotic) -> None:
    assert symbiotic.positions(symbiotic.vaults[0], {(symbiotic.factory, "isEntity"): False}) == []


@pytest.mark.parametrize("answer", [Reverted(), MAX], ids=["refused", "too-many"])
def test_epochs_that_cannot_be_read_are_an_issue_and_not_zero(symbiotic: Symbiotic, answer: object) -> None:
    vault = symbiotic.vaults[0]
    contracts = {"vault": [vault], "factory": [symbiotic.factory]}
    overrides = {(vault, "currentEpoch"): answer}
    (outcome,) = symbiotic.chain.outcomes(
        "symbiotic", contracts, symbiotic.chain.alice, exchanged(vault), overrides=overrides
    )
    assert not outcome.positions
    assert len(outcome.issues) == 1
