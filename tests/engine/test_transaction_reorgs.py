"""Lists of transactions while blocks come and are replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.engine.transactions.page_positions import ListPosition
from chainfolio.errors import NodeBehind
from chainfolio.localchain.evm import Tx, tx
from tests.chains.evm import evm
from tests.chains.index import index
from tests.engine.test_transactions import LOGS, ask, done, filled, hashes, page, wallets, wanted

pytestmark = pytest.mark.node


async def test_what_left_the_chain_is_no_longer_there(tmp_path: Path) -> None:
    with evm(6) as subject:
        alice, weth = subject.deployment.accounts["alice"], subject.token("WETH")
        async with index(subject, tmp_path) as indexed:
            await indexed.fill_final()
            follower = indexed.follower()
            allow = [tx(alice, weth, "approve(address,uint256)", wallets(subject)[2], raw) for raw in (1, 2)]
            gone = done(subject, *allow)
            await follower.step()
            assert hashes(await ask(indexed, [alice.lower()], wanted(2))) == gone[::-1]
            subject.node.reorg(2)
            (stayed,) = done(subject, tx(alice, weth, "deposit()", value=5))
            await follower.step()
            found = hashes(await ask(indexed, [alice.lower()]))
            assert found[0] == stayed
            assert not set(gone) & set(found)


@pytest.mark.slow("the same pages in the other order", only=["False"])
@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_are_the_whole_while_blocks_come_and_go(tmp_path: Path, newest_first: bool) -> None:
    with evm(30) as subject:
        alice, weth = subject.deployment.accounts["alice"], subject.token("WETH")
        async with index(subject, tmp_path) as indexed:
            await filled(indexed)
            begun = [each.hash for each in await ask(indexed, [alice.lower()], wanted(newest_first=newest_first))]
            follower, size = indexed.follower(), 5
            read: list[str] = []
            reached: ListPosition | None = None
            while True:
                question = wanted(size, len(read), newest_first=newest_first, after=reached)
                found, reached = await page(indexed, [alice.lower()], question)
                read += hashes(found)
                if reached is None:
                    break
                # One of hers comes, and the two blocks before it are replaced by others.
                subject.node.reorg(2)
                done(subject, *(tx(alice, weth, "deposit()", value=len(read) + 1) for _ in range(3)))
                await follower.step()
            whole = hashes(await ask(indexed, [alice.lower()], wanted(newest_first=newest_first)))
            assert len(read) == len(set(read)) > size
            if newest_first:
                kept = [each for each in begun if each in whole]
                assert len(whole) > len(kept) > len(begun) - 4
                assert [each for each in read if each in whole] == [each for each in kept if each in read]
                assert set(kept) <= set(read)
            else:
                assert read == whole


async def test_a_transaction_that_a_reorganisation_moves_up_is_on_the_next_page(tmp_path: Path) -> None:
    with evm(6) as subject:
        alice, bob = (subject.deployment.accounts[name] for name in ("alice", "bob"))
        both = [alice.lower(), bob.lower()]
        first, second = (tx(who, subject.token("WETH"), "deposit()", value=7) for who in (alice, bob))
        async with index(subject, tmp_path) as indexed:
            await indexed.fill_final()
            follower = indexed.follower()
            older, newer = done(subject, first, second)
            await follower.step()
            top, reached = await page(indexed, both, wanted(1))
            assert hashes(top) == [newer]
            subject.node.reorg(2, [second, first])  # both are mined again, in the other order
            await follower.step()
            assert hashes(await ask(indexed, both, wanted(2))) == [older, newer], "the same transactions"
            rest, _ = await page(indexed, both, wanted(1, 1, after=reached))
            assert hashes(rest) == [older]


async def test_a_node_on_another_branch_than_the_index_is_an_error(tmp_path: Path) -> None:
    with evm(6) as subject:
        alice, weth = subject.deployment.accounts["alice"], subject.token("WETH")
        sent = tx(alice, weth, "approve(address,uint256)", wallets(subject)[2], 1)
        async with index(subject, tmp_path, datasets=LOGS) as indexed:
            await indexed.fill_final()
            done(subject, sent)
            await indexed.follower().step()
            # The index has not followed yet, and no transaction of the block has been read and stored.
            subject.node.reorg(2, [Tx(wallets(subject)[3], wallets(subject)[2], value=1, gas=21_000)])
            with pytest.raises(NodeBehind, match="does not have transaction"):
                await ask(indexed, [alice.lower()], wanted(1))
