"""Serve a beacon node of any size for benchmarks.

Its network has consistent balances, computed in columns, served as JSON and with `--ssz` also as complete states.

python -m bench.beacon_node --validators 1000000 --head 400 [--ssz]

It prints its address. `/local/log` returns the requests since its last call, as [path, body or null].
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from bench.beacon_ssz import encoded, registered
from chainfolio.adapters.beacon.ssz import MEDIA_TYPE

SLOTS, SEATS, PERIOD = 32, 512, 256  # of an epoch, of a sync committee, in epochs
ETH: Final = 10**9
FAR: Final = 2**64 - 1
STRIDE, SYNC_STRIDE = 7919, 31  # primes: who proposes and who sits is spread over all
PROPOSAL, SEAT, WITHDRAWN, PER_BLOCK = 42_294_581, 16_411, 1_000, 16
SOURCE, TARGET, HEAD = 2_500, 4_700, 2_500
SPEC: Final = {
    "SLOTS_PER_EPOCH": SLOTS,
    "SECONDS_PER_SLOT": 12,
    "DEPOSIT_CHAIN_ID": 1,
    "EPOCHS_PER_SYNC_COMMITTEE_PERIOD": PERIOD,
    "SYNC_COMMITTEE_SIZE": SEATS,
    "SLOTS_PER_HISTORICAL_ROOT": 8192,
    "EPOCHS_PER_HISTORICAL_VECTOR": 65_536,
    "EPOCHS_PER_SLASHINGS_VECTOR": 8192,
    "MIN_SLASHING_PENALTY_QUOTIENT_ELECTRA": 4096,
    **{f"{name}_FORK_EPOCH": 0 for name in ("ALTAIR", "BELLATRIX", "CAPELLA", "DENEB", "ELECTRA")},
}
GENESIS_ROOT: Final = "0x" + "4b" * 32
STATE: Final = re.compile(r"/eth/v2/debug/beacon/states/(\d+)\Z")
# As long as the attestations and transactions of a block of mainnet are, in part: a reader has to pass over them.
FILLER: Final = json.dumps(
    {
        "attestations": [{"aggregation_bits": "0x" + "ab" * 2_000, "signature": "0x" + "cd" * 96}] * 8,
        "graffiti": "0x" + "00" * 32,
    }
)[1:-1]
TRANSACTIONS: Final = json.dumps(["0x" + "ef" * 300] * 60)


def root(slot: int) -> str:
    """Return the root of the block of a slot."""
    return f"0x{slot + 1:064x}"


class Network:
    """A network of validators with 32 ETH each and a block in every slot."""

    def __init__(self, validators: int, head: int) -> None:
        self.count, self.head = validators, head
        self.index = np.arange(validators, dtype=np.int64)
        self._slot = self.index * pow(STRIDE, -1, validators) % validators  # in which each proposes first
        self._slot[self._slot == 0] = validators
        self._sums = [np.zeros(validators, np.int64)]

    def votes(self, epoch: int) -> tuple[Any, Any, Any]:
        """Return attestation rewards of an epoch in Gwei: source, target, head.

        Of a thousand validators three miss the attestation, and twelve the head.
        """
        mixed = (self.index * 0x9E3779B1 + epoch * 0x85EBCA77) & 0xFFFFFFFF
        mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
        chance = (mixed ^ (mixed >> 12)) % 1000
        missed = chance < 3
        source, target = np.where(missed, -SOURCE, SOURCE), np.where(missed, -TARGET, TARGET)
        return source, target, np.where(chance < 15, 0, HEAD)

    def balances(self, epoch: int) -> Any:
        """Return all balances at the end of an epoch, in Gwei."""
        while len(self._sums) < epoch:  # votes are paid one epoch later
            source, target, head = self.votes(len(self._sums) - 1)
            self._sums.append(self._sums[-1] + source + target + head)
        slots = SLOTS * (epoch + 1) - 1  # with a block, from slot 1
        raw_balances = 32 * ETH + self.index % 1_000 + self._sums[max(0, epoch - 1)]
        raw_balances += PROPOSAL * np.maximum(0, (slots - self._slot) // self.count + 1)
        raw_balances -= WITHDRAWN * np.maximum(0, (PER_BLOCK * slots - 1 - self.index) // self.count + 1)
        for period in range(epoch // PERIOD + 1):
            begin, end = max(1, period * PERIOD * SLOTS), min(slots, (period + 1) * PERIOD * SLOTS - 1)
            raw_balances[self.members(period)] += SEAT * (end - begin + 1)
        return raw_balances

    def members(self, period: int) -> Any:
        """Return the validators of the sync committee of a period, one for each seat."""
        return (period * SEATS + np.arange(SEATS)) * SYNC_STRIDE % self.count

    def proposer(self, slot: int) -> int:
        """Return the proposer of a slot."""
        return slot * STRIDE % self.count


def data_json(data: str) -> bytes:
    """Return the body of a response about a finalized state, with JSON text as its data."""
    return f'{{"version":"electra","execution_optimistic":false,"finalized":true,"data":{data}}}'.encode()


def text(value: object) -> str:
    """Return JSON with all numbers as text, as the Beacon API has them."""
    if isinstance(value, dict):
        return "{" + ",".join(f'"{name}":{text(each)}' for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


class Answers:
    """Responses of the Beacon API for a network."""

    def __init__(self, network: Network, *, ssz: bool = False) -> None:
        self.network = network
        self._rows = registered(network.count) if ssz else None
        self.balances = lru_cache(maxsize=4)(network.balances)
        self.votes = lru_cache(maxsize=4)(network.votes)
        self.log: list[tuple[str, str | None]] = []
        self._routes: list[tuple[re.Pattern[str], Callable[..., bytes]]] = [
            (re.compile(pattern + r"(?:\?.*)?\Z"), answer)
            for pattern, answer in (
                (r"/eth/v2/beacon/blocks/(\d+)", self._block),
                (r"/eth/v1/beacon/headers/(\w+)", self._header),
                (r"/eth/v1/beacon/rewards/sync_committee/(\d+)", self._sync),
                (r"/eth/v1/beacon/rewards/blocks/(\d+)", self._reward),
                (r"/eth/v1/beacon/rewards/attestations/(\d+)", self._attestations),
                (r"/eth/v1/beacon/states/(\w+)/validators", self._validators),
                (r"/eth/v1/beacon/states/(\d+)/validator_balances", self._balances),
                (r"/eth/v1/beacon/states/(\d+)/sync_committees", self._committee),
                (r"/eth/v1/beacon/states/(\d+)/root", lambda which, _: data_json(text({"root": root(int(which))}))),
                (r"/eth/v1/validator/duties/proposer/(\d+)", self._duties),
                (r"/eth/v1/beacon/states/head/finality_checkpoints()", self._final),
                (r"/eth/v1/beacon/states/\d+/pending_\w+()", lambda _, body: data_json("[]")),
                (r"/eth/v1/beacon/genesis()", self._genesis),
                (r"/eth/v1/config/spec()", lambda _, body: data_json(text(SPEC))),
                (r"/local/log()", self._log),
            )
        ]

    def answer(self, path: str, body: bytes) -> bytes | None:
        """Return the body of a response, and log the request; None for 404."""
        for pattern, respond in self._routes:
            if (match := pattern.match(path)) is not None:
                if not path.startswith("/local/"):
                    self.log.append((path, body.decode() or None))
                return respond(match[1], json.loads(body) if body else None)
        return None

    def state(self, path: str) -> list[bytes] | None:
        """Return the parts of a state in SSZ; None for another path, or if SSZ is not served."""
        match = STATE.match(path)
        if match is None or self._rows is None:
            return None
        slot = int(match[1])
        self.log.append((path, None))
        return encoded(json.loads(text(SPEC)), GENESIS_ROOT, slot, self._rows, self.balances(slot // SLOTS))

    def _log(self, _: str, body: object) -> bytes:
        content, self.log = json.dumps(self.log).encode(), []
        return content

    def _genesis(self, _: str, body: object) -> bytes:
        return data_json(
            text(
                {
                    "genesis_time": 1_606_824_023,
                    "genesis_validators_root": GENESIS_ROOT,
                    "genesis_fork_version": "0x00000000",
                }
            )
        )

    def _final(self, _: str, body: object) -> bytes:
        return data_json(text({"finalized": {"epoch": self.network.head // SLOTS - 2, "root": root(0)}}))

    def _header(self, key: str, body: object) -> bytes:
        if key.startswith("0x"):
            slot = int(key, 16) - 1
        else:
            slot = self.network.head if key == "head" else int(key)
        message = {
            "slot": slot,
            "proposer_index": self.network.proposer(slot),
            "parent_root": root(slot - 1),
            "state_root": root(slot),
            "body_root": root(slot),
        }
        return data_json(text({"root": root(slot), "canonical": True, "header": {"message": message}}))

    def _block(self, key: str, body: object) -> bytes:
        slot, count = int(key), self.network.count
        withdrawals = [
            {"index": k, "validator_index": k % count, "address": f"0x{k % count:040x}", "amount": WITHDRAWN}
            for k in range((slot - 1) * PER_BLOCK, slot * PER_BLOCK)
        ]
        payload = text(
            {
                "block_number": slot,
                "block_hash": root(slot),
                "fee_recipient": "0x" + "fe" * 20,
                "withdrawals": withdrawals,
            }
        )
        bits = "0x" + "ff" * (SEATS // 8)
        return data_json(
            f'{{"message":{{"slot":"{slot}","proposer_index":"{self.network.proposer(slot)}",'
            f'"parent_root":"{root(slot - 1)}","state_root":"{root(slot)}","body":{{{FILLER},'
            f'"sync_aggregate":{{"sync_committee_bits":"{bits}"}},'
            f'"execution_payload":{payload[:-1]},"transactions":{TRANSACTIONS}}}}}}},"signature":"0x"}}'
        )

    def _reward(self, key: str, body: object) -> bytes:
        return data_json(
            text(
                {
                    "proposer_index": self.network.proposer(int(key)),
                    "total": PROPOSAL,
                    "attestations": PROPOSAL - 1_000,
                    "sync_aggregate": 1_000,
                    "proposer_slashings": 0,
                    "attester_slashings": 0,
                }
            )
        )

    def _sync(self, key: str, body: Sequence[str]) -> bytes:
        members = self.network.members(int(key) // SLOTS // PERIOD).tolist()
        indexes = set(map(int, body)) or set(members)
        return data_json(text([{"validator_index": each, "reward": SEAT} for each in members if each in indexes]))

    def _committee(self, key: str, body: object) -> bytes:
        return data_json(text({"validators": self.network.members(int(key) // SLOTS // PERIOD).tolist()}))

    def _duties(self, key: str, body: object) -> bytes:
        slots = range(int(key) * SLOTS, (int(key) + 1) * SLOTS)
        return data_json(text([{"validator_index": self.network.proposer(slot), "slot": slot} for slot in slots]))

    def _attestations(self, key: str, body: Sequence[str]) -> bytes:
        indexes = self._indexes(body)
        columns = [indexes, *(each[indexes] for each in self.votes(int(key)))]
        rows = ",".join(
            f'{{"validator_index":"{index}","head":"{head}","target":"{target}","source":"{source}","inactivity":"0"}}'
            for index, source, target, head in zip(*(each.tolist() for each in columns), strict=True)
        )
        ideal = [
            {
                "effective_balance": each * ETH,
                "head": HEAD * each // 32,
                "target": TARGET * each // 32,
                "source": SOURCE * each // 32,
            }
            for each in range(1, 2049)
        ]
        return data_json(f'{{"ideal_rewards":{text(ideal)},"total_rewards":[{rows}]}}')

    def _validators(self, key: str, body: Mapping[str, Sequence[str]]) -> bytes:
        slot = self.network.head if key == "head" else int(key)
        indexes = self._indexes(body["ids"])
        balances = self.balances(slot // SLOTS)[indexes]
        rows = ",".join(
            f'{{"index":"{index}","balance":"{balance}","status":"active_ongoing",'
            f'"validator":{{"pubkey":"0x{index:096x}",'
            f'"withdrawal_credentials":"0x01{index:062x}","effective_balance":"32000000000","slashed":false,'
            f'"activation_eligibility_epoch":"0","activation_epoch":"0","exit_epoch":"{FAR}",'
            f'"withdrawable_epoch":"{FAR}"}}}}'
            for index, balance in zip(indexes.tolist(), balances.tolist(), strict=True)
        )
        return data_json(f"[{rows}]")

    def _balances(self, key: str, body: Sequence[str]) -> bytes:
        indexes = self._indexes(body)
        balances = self.balances(int(key) // SLOTS)[indexes]
        return data_json(
            "["
            + ",".join(
                f'{{"index":"{index}","balance":"{balance}"}}'
                for index, balance in zip(indexes.tolist(), balances.tolist(), strict=True)
            )
            + "]"
        )

    def _indexes(self, ids: Sequence[str]) -> Any:
        indexes = np.array(ids, np.int64) if ids else self.network.index
        return indexes[indexes < self.network.count]


class Connection(asyncio.Protocol):
    """A persistent connection that answers one request at a time."""

    def __init__(self, answers: Answers) -> None:
        self._answers, self._kept = answers, b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each complete request."""
        self._kept += data
        head, separator, remainder = self._kept.partition(b"\r\n\r\n")
        if not separator:
            return
        length = re.search(rb"content-length: *(\d+)", head, re.I)
        if len(remainder) < (size := int(length[1]) if length else 0):
            return
        self._kept = remainder[size:]
        path = head.split(b" ", 2)[1].decode()
        if (parts := self._answers.state(path)) is not None:
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\neth-consensus-version: electra\r\ncontent-length: %d\r\n\r\n"
                % (MEDIA_TYPE.encode(), sum(map(len, parts)))
            )
            self._transport.writelines(parts)
            return
        body = self._answers.answer(path, remainder[:size])
        status = b"404 Not Found" if body is None else b"200 OK"
        content = body if body is not None else b'{"code":404,"message":"nothing"}'
        self._transport.write(
            b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(content))
        )
        self._transport.write(content)


async def serve(network: Network, *, ssz: bool) -> None:
    """Serve the network on a free port until cancelled; print the URL first."""
    answers = Answers(network, ssz=ssz)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answers), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve the network that the command line describes."""
    parser = argparse.ArgumentParser(prog="python -m bench.beacon_node", description=__doc__)
    parser.add_argument("--validators", type=int, required=True)
    parser.add_argument("--head", type=int, required=True, help="the newest slot")
    parser.add_argument("--ssz", action="store_true", help="states in SSZ, too")
    chosen = parser.parse_args()
    asyncio.run(serve(Network(chosen.validators, chosen.head), ssz=chosen.ssz))


if __name__ == "__main__":
    main()
