"""The eight paths of validators on a real server, whose index the command made from a local chain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from chainfolio.api.serve import listening
from chainfolio.cli.main import main
from chainfolio.cli.serve import answering
from chainfolio.cli.state_store import open_state
from chainfolio.settings import Settings
from chainfolio.settings_file import load
from tests.api.sessions import client_session
from tests.beacon.conftest import COMPOUNDING, EXITED, OFFLINE, SLASHED, TOPPED_UP, IndexedBeacon

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("beacon")]
BASE = "/v1/beacon/validators"
GWEI = 10**9
GENESIS_S, EPOCH_S = 1_606_824_023, 48
VOTES = ("source", "target", "head", "inactivity")


@dataclass(frozen=True)
class Client:
    """Asks the server with a key that may ask for validators."""

    url: str
    key: str
    session: ClientSession

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and document."""
        headers = {"Authorization": f"Bearer {self.key}"}
        async with self.session.get(f"{self.url}{BASE}{path}", headers=headers) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else await answer.text()

    async def rewards(self, of: int | str, query: str) -> dict[str, Any]:
        """A page of rewards."""
        kind = "index" if isinstance(of, int) else "pubkey"
        status, rewards = await self.get(f"/rewards/{kind}/{of}?{query}")
        assert status == 200, rewards
        document: dict[str, Any] = rewards
        return document


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[Client]:
    state = open_state(settings)
    _, key = state.create_account("operator", "PRO", 10_000, ("enterprise",))
    state.close()
    async with listening(await answering(settings), "127.0.0.1", 0, drain_s=1) as port, client_session() as session:
        yield Client(f"http://127.0.0.1:{port}", key, session)


def total(rows: list[dict[str, Any]]) -> int:
    return sum(int(each[name]) for each in rows for name in (*VOTES, "sync", "proposals", "slashing"))


async def test_details_are_those_of_the_node_now(indexed: IndexedBeacon) -> None:
    async with served(indexed.settings) as client:
        for index in (0, EXITED, SLASHED, COMPOUNDING):
            state = indexed.lived.node.call(f"/eth/v1/beacon/states/head/validators/{index}")["data"]
            pubkey, fields = state["validator"]["pubkey"], state["validator"]
            status, document = await client.get(f"/details/index/{index}")
            assert (status, document) == await client.get(f"/details/pubkey/{pubkey.upper().replace('X', 'x')}")
            assert document["validator"] == {
                "index": index,
                "pubkey": pubkey,
                "slashed": fields["slashed"],
                "status": state["status"],
            }
            far_epoch = str(2**64 - 1)
            assert document["lifecycle"] == {
                "activationEpoch": 0,
                "activationTimestamp": GENESIS_S,
                "exitEpoch": None if fields["exit_epoch"] == far_epoch else int(fields["exit_epoch"]),
                "withdrawableEpoch": (
                    None if fields["withdrawable_epoch"] == far_epoch else int(fields["withdrawable_epoch"])
                ),
            }
            assert document["balance"] == {
                "actual": state["balance"] + "0" * 9 if state["balance"] != "0" else "0",
                "effective": fields["effective_balance"] + "0" * 9 if fields["effective_balance"] != "0" else "0",
            }
            credentials = fields["withdrawal_credentials"]
            prefix = 2 if index == COMPOUNDING and indexed.lived.fork == "electra" else 1
            assert document["withdrawalCredentials"] == {
                "prefix": prefix,
                "credential": credentials,
                "address": "0x" + credentials[-40:],
            }


async def test_a_validator_that_is_not_there_is_404_in_the_words_of_the_service(indexed: IndexedBeacon) -> None:
    async with served(indexed.settings) as client:
        for kind, value in (("index", 12345), ("index", 2**63 - 1), ("pubkey", "0x" + "ab" * 48)):
            for path in ("details", "withdrawals", "deposits"):
                assert await client.get(f"/{path}/{kind}/{value}") == (
                    404,
                    {"error": f"Validator not found for {kind} {value}"},
                )


async def test_rewards_by_epoch_are_the_rows_and_their_sums_are_the_same_in_every_granularity(
    indexed: IndexedBeacon,
) -> None:
    last = indexed.last
    for index in (OFFLINE[0], SLASHED, COMPOUNDING):
        rows_by_epoch = {
            each["epoch"]: each for each in indexed.rows["validator_rewards"] if each["validator"] == index
        }
        async with served(indexed.settings) as client:
            page = await client.rewards(index, f"rangeType=epoch&rangeFrom=2&rangeTo={last}&granularity=epoch&limit=10")
            assert (page["totalRows"], page["pages"]) == (last - 1, -(-(last - 1) // 10))
            for bucket in page["data"]:
                row = rows_by_epoch[bucket["epochStart"]]
                assert bucket["epochEnd"] == bucket["epochStart"]
                assert bucket["timestampStart"] == GENESIS_S + EPOCH_S * bucket["epochStart"]
                assert bucket["timestampEnd"] == bucket["timestampStart"] + EPOCH_S - 1
                assert bucket["consensusReward"] == str(total([row]) * GWEI)
                assert bucket["endEffectiveBalance"] == str(row["effective"] * GWEI)
                if index != SLASHED:  # who is slashed leaves
                    assert bucket["attestationsIncluded"] + bucket["attestationsMissed"] == 1
                assert bucket["syncParticipations"] == row["sync_hits"]
                assert bucket["missedBlocks"] == row["missed"]
            for granularity in ("day", "week", "month"):
                whole_period = await client.rewards(
                    index, f"rangeType=epoch&rangeFrom=0&rangeTo={last}&granularity={granularity}"
                )
                (bucket,) = whole_period["data"]
                assert (bucket["epochStart"], bucket["epochEnd"]) == (0, last)
                assert bucket["consensusReward"] == str(total(list(rows_by_epoch.values())) * GWEI)
                assert bucket["dateStart"] == bucket["dateEnd"] == "2020-12-01"
                assert bucket["proposedBlocks"] == sum(each["proposed"] for each in rows_by_epoch.values())
                assert bucket["executionReward"] == ("N/A" if bucket["proposedBlocks"] else "0")
                ideal = sum(each["ideal"] + each["sync_ideal"] + each["proposals"] for each in rows_by_epoch.values())
                assert bucket["consensusPotentialReward"] == str(ideal * GWEI)
                assert 0 <= bucket["consensusEfficiency"] <= 1


async def test_a_range_of_time_has_the_epochs_that_begin_in_it(indexed: IndexedBeacon) -> None:
    begin, end = GENESIS_S + 3 * EPOCH_S - 1, GENESIS_S + 6 * EPOCH_S - 1
    async with served(indexed.settings) as client:
        page = await client.rewards(0, f"rangeType=timestamp&rangeFrom={begin}&rangeTo={end}&granularity=day")
    (bucket,) = page["data"]
    assert (bucket["epochStart"], bucket["epochEnd"]) == (3, 5)
    assert datetime.fromtimestamp(bucket["timestampStart"], UTC).isoformat() == "2020-12-01T12:02:47+00:00"


async def test_epochs_that_nobody_indexed_are_refused_and_never_zero(indexed: IndexedBeacon, tmp_path: Path) -> None:
    config = tmp_path / "chainfolio.toml"
    config.write_text(
        f'[chains.own]\nadapter = "beacon"\nrpc = ["{indexed.lived.node.url}"]\nvalidators = ["{TOPPED_UP}"]\n'
    )
    arguments = ["index", "own", "--config", str(config), "--json", "--from", "0", "--to", "100"]
    assert await asyncio.to_thread(main, arguments) == 0
    ask = "rangeType=epoch&granularity=day&rangeFrom=0&rangeTo="
    async with served(load(config)) as client:
        assert (await client.get(f"/rewards/index/{TOPPED_UP}?{ask}9"))[0] == 200
        for path in (f"/rewards/index/{TOPPED_UP}?{ask}11", f"/rewards/index/0?{ask}5", "/withdrawals/index/0"):
            status, answer = await client.get(path)
            assert status == 503, answer
            assert "data" not in answer


async def test_withdrawals_and_deposits_are_the_newest_first_in_wei(indexed: IndexedBeacon) -> None:
    withdrawals = [each for each in indexed.rows["withdrawals"] if each["validator"] == TOPPED_UP]
    withdrawals.sort(key=lambda each: -each["number"])
    async with served(indexed.settings) as client:
        status, page = await client.get(f"/withdrawals/index/{TOPPED_UP}?offset=1&limit=2")
        assert (status, page["totalRows"]) == (200, len(withdrawals))
        assert page["data"] == [
            {
                "slot": each["height"],
                "epoch": each["height"] // 8,
                "timestamp": GENESIS_S + 6 * each["height"],
                "index": each["number"],
                "amount": str(each["gwei"] * GWEI),
                "address": each["address"],
            }
            for each in withdrawals[1:3]
        ]
        _, page = await client.get(f"/deposits/index/{TOPPED_UP}")
        if indexed.lived.fork == "electra":
            (deposit,) = page["data"]
            assert (deposit["amount"], deposit["depositIndex"]) == (str(5 * 10**18), 192)
            assert deposit["withdrawalAddress"] == "0x" + deposit["withdrawalCredentials"][-40:]
        else:
            assert page == {"data": [], "offset": 0, "limit": 10, "totalRows": 0, "pages": 0}


async def test_a_beacon_chain_is_no_chain_of_accounts(indexed: IndexedBeacon) -> None:
    async with served(indexed.settings) as client:
        headers = {"Authorization": f"Bearer {client.key}"}
        async with client.session.get(f"{client.url}/v1/chains", headers=headers) as answer:
            assert (answer.status, await answer.json()) == (200, [])


async def test_without_a_beacon_chain_every_path_is_501(tmp_path: Path) -> None:
    async with served(Settings(data=str(tmp_path))) as client:
        for path in ("/details/index/0", "/withdrawals/index/0", "/deposits/pubkey/0x" + "ab" * 48):
            assert (await client.get(path))[0] == 501
