"""Pictures of the settings: chains, protocols and tokens without one of their own have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.assets import Asset
from chainfolio.engine.service import Engine
from chainfolio.errors import BadSettings
from chainfolio.indexer.wiring import System
from chainfolio.portfolio.facts import Options, named_pictures, token_pictures
from chainfolio.portfolio.pictures import drawn
from chainfolio.settings import Images, Settings
from chainfolio.settings_checks import check
from chainfolio.settings_file import load

CHAIN = '[chains.ethereum]\nrpc = ["http://127.0.0.1:1"]\n'
LOGOS = "https://logos.example"
IMAGES = f"""
[images]
token = "{LOGOS}/{{chain}}/{{address}}.png"
protocol = "{LOGOS}/{{key}}.png"
chain = "{LOGOS}/chain/{{key}}.png"
"""


def opened(folder: Path, settings_text: str = "") -> Engine:
    file = folder / "chainfolio.toml"
    file.write_text(CHAIN + settings_text)
    return Engine(System(load(file, {}), keeps_nothing=True))


def test_pictures_of_the_settings_are_in_all_documents(tmp_path: Path) -> None:
    engine = opened(tmp_path, IMAGES)
    facts, token = engine.facts()["ethereum"], Asset("eip155:1", "erc20", "0x" + "ab" * 20)
    options = Options(images=True)
    assert engine.chains()[0].img_small == f"{LOGOS}/chain/ethereum.png"
    assert named_pictures(facts, options) == (f"{LOGOS}/chain/ethereum.png",) * 2
    assert token_pictures(facts, token, "ABAB", options) == (f"{LOGOS}/ethereum/{token.shown_contract}.png",) * 2
    assert engine.system.registry.facts["aave3"].images == {"small": f"{LOGOS}/aave3.png"}
    assert engine.pictures().protocols["aave3"] == f"{LOGOS}/aave3.png"


def test_without_settings_they_are_drawn(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    facts = engine.facts()["ethereum"]
    assert engine.chains()[0].img_small == drawn("ethereum", facts.name)
    assert engine.system.registry.facts["aave3"].images == {}


@pytest.mark.parametrize(
    "images",
    [
        Images(token="https://logos.example/{address}.png"),
        Images(token="logos/{chain}/{address}.png"),
        Images(protocol="https://logos.example/protocol.png"),
        Images(chain="ftp://logos.example/{key}.png"),
    ],
    ids=["one token of two chains", "no host", "one for all", "no web address"],
)
def test_a_template_that_gives_no_picture_of_each_is_a_settings_error(images: Images) -> None:
    with pytest.raises(BadSettings, match="is no template of pictures"):
        check(Settings(images=images))
