"""The dashboard's files: libraries are those of their packages, and no file names another host."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
import re
import shutil
import subprocess
import tomllib
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak

FOLDER = Path(__file__).parents[2] / "dashboard"
STATIC = FOLDER / "static"
MAX_GZIPPED = 300_000


def test_each_library_has_the_hash_of_its_package() -> None:
    vendored = tomllib.loads((FOLDER / "vendor.toml").read_text())
    files = {each["name"]: each["integrity"] for each in vendored["files"]}
    assert files.keys() == {path.name for path in (STATIC / "vendor").iterdir()}
    for name, integrity in files.items():
        digest = hashlib.sha384((STATIC / "vendor" / name).read_bytes()).digest()
        assert integrity == f"sha384-{base64.b64encode(digest).decode()}", name


def test_no_file_names_another_host_or_reads_text_as_html() -> None:
    forbidden = re.compile(r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|outerHTML|insertAdjacentHTML|\beval\(")
    own_files = [path for path in STATIC.iterdir() if path.is_file()]
    assert [path.name for path in own_files if forbidden.search(path.read_text())] == []


def test_the_scripts_are_small() -> None:
    assert sum(len(gzip.compress(path.read_bytes())) for path in STATIC.rglob("*.js")) < MAX_GZIPPED


def test_texts_stand_in_one_file() -> None:
    """Elements get their text from `TEXTS`: no other file has a text of two words."""
    sentence = re.compile(r'"[A-Z][a-z]+ [a-z]+[^"]*"')
    scripts = [path for path in STATIC.glob("*.js") if path.name != "texts.js"]
    assert [path.name for path in scripts if sentence.search(path.read_text())] == []


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")
def test_a_revocation_is_the_call_that_a_library_encodes() -> None:
    token, spender, permit2 = (f"0x{digit * 40}" for digit in "1bC")
    row, number = {"contract": token, "from": f"0x{'d' * 40}", "to": spender}, 2**255 + 7
    rows = [
        row,
        {**row, "permit2": permit2},
        {**row, "standard": "erc1155"},
        {**row, "standard": "erc721", "tokenId": str(number)},
        {**row, "to": "TXYZopYRdj2D9XRtbG411XZZ3kM5VkAeBf"},
    ]
    script = f"""
      const {{ending}} = await import({(STATIC / "revoke.js").as_uri()!r});
      console.log(JSON.stringify({json.dumps(rows)}.map(ending)));"""
    ran = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, check=True, text=True)
    *calls, none = json.loads(ran.stdout)
    assert none is None, "Tron has other transactions"
    assert [each["to"] for each in calls] == [token, permit2, token, token]
    encoded: list[tuple[str, list[Any]]] = [
        ("approve(address,uint256)", [spender, 0]),
        ("approve(address,address,uint160,uint48)", [token, spender, 0, 0]),
        ("setApprovalForAll(address,bool)", [spender, False]),
        ("approve(address,uint256)", [f"0x{'0' * 40}", number]),
    ]
    for call, (function, arguments) in zip(calls, encoded, strict=True):
        types = function.partition("(")[2].rstrip(")").split(",")
        assert call["data"] == "0x" + (keccak(text=function)[:4] + encode(types, arguments)).hex()
    assert calls[0]["path"] == f"approve?address={spender}&uint256=0"


def random_decimals(count: int) -> list[str]:
    chance = random.Random(29)
    numbers = [chance.getrandbits(chance.choice((8, 64, 256))) for _ in range(count)]
    scaled = [Decimal(number).scaleb(-chance.choice((0, 2, 6, 18, 30))) for number in numbers]
    return [f"{chance.choice(('', '-'))}{number:f}" for number in scaled] + ["0", "0.005", "0.015", "-0.025", "1"]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")
def test_decimals_are_exact_to_the_last_digit() -> None:
    texts, module = random_decimals(200), (STATIC / "decimal.js").as_uri()
    script = f"""
      const {{add, round, compare, money, amount, percent, asPercent}} = await import({module!r});
      const texts = {json.dumps(texts)};
      console.log(JSON.stringify({{
        sum: add(...texts), rounded: texts.map(text => round(text, 2)),
        order: texts.map(text => compare(text, texts[0])),
        shown: [money("24163463.97971357078182998480992404"), money("-0.000123456"), money("N/A"), money("5", "EUR"),
          amount("1234567.12345678"), amount("0.000000000000000001"), percent("1", "3"), percent("1", "0"),
          asPercent("0.009193780624")],
      }}));"""
    ran = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, check=True, text=True)
    results = json.loads(ran.stdout)
    with localcontext(prec=200):
        numbers = [Decimal(text) for text in texts]
        assert Decimal(results["sum"]) == sum(numbers)
        halves = [number.quantize(Decimal("0.01"), ROUND_HALF_EVEN) for number in numbers]
        assert [Decimal(text) for text in results["rounded"]] == halves
        assert results["order"] == [int(number.compare(numbers[0])) for number in numbers]
    assert results["shown"] == [
        "$24,163,463.98",
        "−$0.000123",
        "N/A",
        "5.00 EUR",
        "1,234,567.123457",
        "0.000000000000000001",
        "33.33",
        None,
        "0.92",
    ]
