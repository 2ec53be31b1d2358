"""Lists of transactions while blocks come and are replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.engine.results import ListPosition
from chainfolio.errors import NodeBehind
from chainfolio.localchain.evm import Tx, tx
from tests.chains.evm import evm
from tests.chains.index import index
from tests.engine.test_transactions import LOGS, ask, filled, hashes, page, send_all, transaction_filter, wallets

pytestmark = pytest.mark.node


async def test_what_left_the_chain_is_no_longer_there(tmp_path: Path) -> None:
    with evm(6) as subject:
        alice, weth = subject.deployment.accounts["alice"], subject.token("WETH")
        async with index(subject, tmp_path) as indexed:
            await indexed.fill_final()
            follower = indexed.follower()
            allow = [tx(alice, weth, "approve(address,uint256)", wallets(subject)[2], raw) for raw in (1, 2)]
            replaced_hashes = send_all(subject, *allow)
            await follower.step()
            assert hashes(await ask(indexed, [alice.lower()], transaction_filter(2))) == replaced_hashes[::-1]
            subject.node.reorg(2)
            (stayed,) = send_all(subject, tx(alice, weth, "deposit()", value=5))
            await follower.step()
            remaining = hashes(await ask(indexed, [alice.lower()]))
            assert remaining[0] == stayed
            assert not set(replaced_hashes) & set(remaining)


@pytest.mark.slow("the same pages in the other order", only=["False"])
@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_are_the_whole_while_blocks_come_and_go(tmp_path: Path, newest_first: bool) -> None:
    with evm(30) as subject:
        alice, weth = subject.deployment.accounts["alice"], subject.token("WETH")
        async with index(subject, tmp_path) as indexed:
            await filled(indexed)
            initial_hashes = [
                each.hash for each in await ask(indexed, [alice.lower()], transaction_filter(newest_first=newest_first))
            ]
            follower, size = indexed.follower(), 5
            read: list[str] = []
            position: ListPosition | None = None
            while True:
                question = transaction_filter(size, len(read), newest_first=newest_first, after=position)
                documents, position = await page(indexed, [alice.lower()], question)
                read += hashes(documents)
                if position is None:
                    break
                # One of hers comes, and the two blocks before it are replaced by others.
                subject.node.reorg(2)
                send_all(subject, *(tx(alice, weth, "deposit()", value=len(read) + 1) for _ in range(3)))
                await follower.step()
            all_hashes = hashes(await ask(indexed, [alice.lower()], transaction_filter(newest_first=newest_first)))
            assert len(read) == len(set(read)) > size
            if newest_first:
                surviving = [each for each in initial_hashes if each in all_hashes]
                assert len(all_hashes) > len(surviving) > len(initial_hashes) - 4
                assert [each for each in read if each in all_hashes] == [each for each in surviving if each in read]
                assert set(surviving) <= set(read)
            else:
                assert read == all_hashes


async def test_a_transaction_that_a_reorganisation_moves_up_is_on_the_next_page(tmp_path: Path) -> None:
    with evm(6) as subject:
        alice, bob = (subject.deployment.accounts[name] for name in ("alice", "bob"))
        both = [alice.lower(), bob.lower()]
        first, second = (tx(account, subject.token("WETH"), "deposit()", value=7) for account in (alice, bob))
        async with index(subject, tmp_path) as indexed:
            await indexed.fill_final()
            follower = indexed.follower()
            older, newer = send_all(subject, first, second)
            await follower.step()
            top, position = await page(indexed, both, transaction_filter(1))
            assert hashes(top) == [newer]
            subject.node.reorg(2, [second, first])  # both are mined again, in the other order
            await follower.step()
            assert hashes(await ask(indexed, both, transaction_filter(2))) == [older, newer], "the same transactions"
            next_page, _ = await page(indexed, both, transaction_filter(1, 1, after=position))
            assert hashes(next_page) == [older]


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_a_node_on_another_branch_than_the_index_is_an_error(tmp_path: Path) -> None:
    with evm(6) as subject:
        alice, weth = subject.deployment.accounts["alice"], subject.token("WETH")
        approval = tx(alice, weth, "approve(address,uint256)", wallets(subject)[2], 1)
        async with index(subject, tmp_path, datasets=LOGS) as indexed:
            await indexed.fill_final()
            send_all(subject, approval)
            await indexed.follower().step()
            # The index has not followed yet, and no transaction of the block has been read and stored.
            subject.node.reorg(2, [Tx(wallets(subject)[3], wallets(subject)[2], value=1, gas=21_000)])
            with pytest.raises(NodeBehind, match="does not have transaction"):
                await ask(indexed, [alice.lower()], transaction_filter(1))
