"""Cut-offs, policies and signatures of a close, without a chain."""

from __future__ import annotations

import shutil
import subprocess
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Position, Price, Snapshot, Token
from chainfolio.errors import BadRequest, NodeBehind
from chainfolio.exports.close.check_pack import is_signed
from chainfolio.exports.close.cutoff import block_at_cutoff, instant_us
from chainfolio.exports.close.pack import is_inside
from chainfolio.exports.close.policy import Limits, Policy, policy_in, price_rule
from chainfolio.exports.close.signature import fingerprint, public_key_in, sign, signer_of
from chainfolio.exports.close.valued import (
    ChainEnd,
    held_rows,
    position_assets,
    price_stops,
    without_faults_of_strangers,
)

ETH = Asset("eip155:1", "slip44", "60")
HOUR_US = 3_600_000_000
needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen here")


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


def key_at(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "fund", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


# --- the instant -----------------------------------------------------------------------------------------------------


def test_a_cutoff_is_the_hour_of_its_zone() -> None:
    assert instant_us("to", "2025-12-31", "17:00 Europe/Zurich") == us("2025-12-31T16:00Z")
    assert instant_us("to", "2025-06-30", "17:00 Europe/Zurich") == us("2025-06-30T15:00Z")
    assert instant_us("to", "2025-06-30", "00:00:01 UTC") == us("2025-06-30T00:00:01Z")


@pytest.mark.parametrize(
    ("day", "at", "problem"),
    [
        ("2025-10-26", "02:30 Europe/Zurich", "exists twice"),
        ("2025-03-30", "02:30 Europe/Zurich", "does not exist"),
        ("2011-12-30", "12:00 Pacific/Apia", "does not exist"),
        ("2025-12-31", "17:00", "is no time with a zone"),
        ("2025-12-31", "25:00 UTC", "is no time of a day"),
        ("2025-12-31", "17:00 Europe/Atlantis", "there is no time zone"),
        ("2025-02-30", "17:00 UTC", "2025-02-30"),
    ],
    ids=["twice", "never", "a day that was left out", "no zone", "no hour", "unknown zone", "no day"],
)
def test_an_instant_that_is_not_one_is_refused(day: str, at: str, problem: str) -> None:
    with pytest.raises(BadRequest, match=problem):
        instant_us("to", day, at)


def a_chain(times_s: list[int], *, final: int) -> Any:
    blocks = [Block(height, f"0x{height}", "", time_s * 1_000_000) for height, time_s in enumerate(times_s)]

    async def heads() -> object:
        return SimpleNamespace(latest=blocks[-1])

    async def of_heights(heights: list[int]) -> list[Block]:
        return [blocks[height] for height in heights if height < len(blocks)]

    return SimpleNamespace(
        key="local", capabilities=frozenset(), heads=heads, blocks=of_heights, is_final=lambda height: height <= final
    )


async def test_the_block_is_the_last_one_before_the_instant() -> None:
    chain = a_chain([100, 110, 120, 130], final=3)
    for at_s, height in ((121, 2), (120, 1), (130, 2)):
        block = await block_at_cutoff(chain, "to", at_s * 1_000_000, 200_000_000)
        assert block.height == height


@pytest.mark.parametrize(
    ("at_s", "error", "problem"),
    [
        (201, BadRequest, "to: the cut-off is in the future"),
        (100, BadRequest, "to: local began after the cut-off"),
        (131, NodeBehind, "its newest block, 3, is from before"),
        (125, NodeBehind, "block 2, the last one before the cut-off, is not final yet"),
    ],
    ids=["future", "before the chain", "after the head", "not final"],
)
async def test_an_instant_without_a_final_block_is_refused(at_s: int, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        await block_at_cutoff(a_chain([100, 110, 120, 130], final=1), "to", at_s * 1_000_000, 200_000_000)


# --- the policy ------------------------------------------------------------------------------------------------------

OVERRIDE = '[[override]]\nasset = "eip155:1/slip44:60"\ndate = "2025-12-31"\nprice = "1"\nwho = "A"\nreason = "b"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('method = "best"', "'best' is no method"),
        ('method = "uk"\nlots = "wallet"', "pool all that one person holds"),
        ('lots = "mine"', "Invalid enum value 'mine'"),
        ("method = 1", "Expected `str`"),
        ("methods = 'fifo'", "unknown field `methods`"),
        ("method = ", "Invalid value"),
        ('[prices]\nmax_deviation_percent = "ten"', "is no number from 0 on"),
        ("[prices]\nmax_age_hours = -1", "Expected `int` >= 0"),
        (OVERRIDE.replace('"1"', '"-1"'), "is no number from 0 on"),
        (OVERRIDE.replace('"b"', '""'), "Expected `str` of length >= 1"),
        (OVERRIDE.replace("eip155:1/slip44:60", "ether"), "'ether' is not a CAIP-19 asset"),
        (OVERRIDE * 2, "two overrides of eip155:1/slip44:60 on 2025-12-31"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadRequest, match=problem):
        policy_in(text.encode())


def test_overrides_are_those_of_their_day() -> None:
    policy = policy_in((OVERRIDE + OVERRIDE.replace("2025-12-31", "2024-12-31")).encode())
    assert policy.overrides("2025-12-31")[ETH].price == "1"
    assert policy.overrides("2025-12-30") == {}


def test_a_price_beyond_a_limit_names_itself() -> None:
    other = Price(ETH, Decimal(120), "vendor", 0, Decimal(1))
    price = Price(ETH, Decimal(100), "feed", 0, Decimal(1), alternatives=(other,))
    assert price_rule(price, HOUR_US, Limits(1, "20")).fault == ""
    assert "is 1 hours old, and at most 0" in price_rule(price, HOUR_US, Limits(0, "1000")).fault
    assert "vendor says 120: more than 19.9 % from it" in price_rule(price, HOUR_US, Limits(1, "19.9")).fault


@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "sent by anybody"])
@pytest.mark.parametrize("protocol", ["wallet", "farm"])
def test_only_trusted_assets_without_a_price_stop_a_close(protocol: str, is_trusted: bool) -> None:
    owner, asset = "0x" + "a" * 40, Asset("eip155:1", "erc20", "0x" + "b" * 40)
    holding = Holding(owner, Token(asset, "ODD", "Odd", 18), 5, protocol)
    position = Position(owner, protocol, "FARMING", "Odd", (holding,))
    loose = (holding,) if protocol == "wallet" else ()
    positions = () if loose else (position,)
    block = Block(7, "0x7", "0x6", 0)
    snapshot = Snapshot("local", block, (owner,), loose, (), (), positions=positions)
    end = ChainEnd("closing", "2025-12-31", SimpleNamespace(key="local"), snapshot, Decimal(1), {})
    rows = list(held_rows(end))
    trusted = {asset} if is_trusted else set()
    expected = [f"ODD ({asset}) at the closing has no price"] if is_trusted else []
    assert list(price_stops(end, rows, Policy(), trusted)) == expected
    assert [(row.flag, row.is_counted) for row in rows] == [("unvalued", False)]
    assert position_assets(position) == {asset}


@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "sent by anybody"])
def test_a_price_beyond_a_limit_of_a_token_of_strangers_is_left_out_and_stops_nothing(is_trusted: bool) -> None:
    owner, asset = "0x" + "a" * 40, Asset("eip155:1", "erc20", "0x" + "b" * 40)
    holding = Holding(owner, Token(asset, "ODD", "Odd", 18), 5, "wallet")
    other = Price(asset, Decimal(120), "pool 2", 0, Decimal(1))
    price = Price(asset, Decimal(100), "pool 1", 0, Decimal(1), alternatives=(other,))
    snapshot = Snapshot("local", Block(7, "0x7", "0x6", 0), (owner,), (holding,), (price,), ())
    trusted = {asset} if is_trusted else set()
    whole = ChainEnd("closing", "2025-12-31", SimpleNamespace(key="local"), snapshot, Decimal(1), {})
    end = without_faults_of_strangers(whole, Policy(), trusted)
    rows = list(held_rows(end))
    assert [row.flag for row in rows] == ["" if is_trusted else "unvalued"]
    assert len(list(price_stops(end, rows, Policy(), trusted))) == is_trusted


# --- the signature ---------------------------------------------------------------------------------------------------


@needs_ssh
def test_a_signature_has_the_bytes_of_ssh_keygen(tmp_path: Path) -> None:
    key, file = key_at(tmp_path / "key"), tmp_path / "manifest.json"
    file.write_bytes(b'{"a": 1}\n')
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "chainfolio-close", file], check=True)
    theirs = (tmp_path / "manifest.json.sig").read_bytes()
    assert sign(file.read_bytes(), key) == theirs
    public = public_key_in((tmp_path / "key.pub").read_text())
    assert signer_of(file.read_bytes(), theirs) == public
    assert public_key_in(f'# closers\nfund@example.org namespaces="x" {public}\n') == public
    shown = subprocess.run(["ssh-keygen", "-l", "-f", tmp_path / "key.pub"], check=True, capture_output=True, text=True)
    assert fingerprint(public) in shown.stdout


@needs_ssh
def test_every_altered_byte_of_a_signature_is_noticed(tmp_path: Path) -> None:
    data = b"closed"
    armored = sign(data, key_at(tmp_path / "key"))
    public = public_key_in((tmp_path / "key.pub").read_text())
    for at in range(len(armored)):
        altered = armored[:at] + bytes([armored[at] ^ 1]) + armored[at + 1 :]
        try:
            assert signer_of(data, altered) != public, at
        except ValueError:
            continue
    for altered in (b"", armored[:-1], armored + b"\n", armored.replace(b"\n", b"\r\n"), armored[:100]):
        with pytest.raises(ValueError, match="signature"):
            signer_of(data, altered)
    with pytest.raises(ValueError, match="not of these data"):
        signer_of(b"opened", armored)


@needs_ssh
@pytest.mark.parametrize(
    ("kind", "passphrase", "problem"),
    [("ed25519", "secret", "has a passphrase"), ("ecdsa", "", "is no private key of type ssh-ed25519")],
)
def test_a_key_that_cannot_sign_is_refused(tmp_path: Path, kind: str, passphrase: str, problem: str) -> None:
    with pytest.raises(BadRequest, match=problem):
        sign(b"", key_at(tmp_path / "key", kind, passphrase))


def test_a_key_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="No such file"):
        sign(b"", tmp_path / "key")
    (tmp_path / "key").write_text("ssh-ed25519 AAAA")
    with pytest.raises(BadRequest, match="is no private key"):
        sign(b"", tmp_path / "key")
    with pytest.raises(BadRequest, match="has no public key"):
        public_key_in("ssh-rsa AAAA fund")


@pytest.mark.parametrize(
    ("key", "message", "signature"),
    [  # RFC 8032, section 7.1: the first two tests
        (
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
    ],
    ids=["empty", "one byte"],
)
def test_the_independent_checker_verifies_ed25519(key: str, message: str, signature: str) -> None:
    parts = [bytes.fromhex(each) for each in (key, message, signature)]
    assert is_signed(*parts)
    assert not is_signed(parts[0], parts[1] + b"x", parts[2])
    order = 2**252 + 27742317777372353535851937790883648493
    malleable = (int.from_bytes(parts[2][32:], "little") + order).to_bytes(32, "little")
    assert not is_signed(parts[0], parts[1], parts[2][:32] + malleable)


@pytest.mark.parametrize("path", ["../key", "/etc/passwd", "a/../../b", "a//b", "./a", "", "a\\b", "a/", "a\nb", ".."])
def test_a_path_that_leaves_the_folder_is_seen(path: str) -> None:
    assert not is_inside(path)
    assert is_inside("tables/gains.csv")
