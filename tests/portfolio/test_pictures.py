"""Pictures drawn from names: equal for equal names, valid SVG for any name, readable on both themes."""

from __future__ import annotations

from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.portfolio.pictures import COLOURS, drawn, pictures, token_images

SVG = "{http://www.w3.org/2000/svg}"


def svg(picture: str) -> ElementTree.Element:
    head, _, text = picture.partition(",")
    assert head == "data:image/svg+xml"
    return ElementTree.fromstring(unquote(text))


@given(st.text(), st.text())
def test_any_name_gives_a_picture_of_at_most_two_plain_letters(subject: str, label: str) -> None:
    root = svg(drawn(subject, label))
    letters = root.findtext(f"{SVG}text") or ""
    assert [each.tag for each in root.iter()] == [f"{SVG}svg", f"{SVG}circle", f"{SVG}text"]
    assert len(letters) <= 2
    assert letters == "" or (letters.isascii() and letters.isalnum())


def test_letters_are_those_of_the_label_and_the_colour_that_of_the_subject() -> None:
    assert svg(drawn("ethereum:0xa", "$usdc")).findtext(f"{SVG}text") == "US"
    colours = {svg(drawn(f"ethereum:{number}", "A"))[0].get("fill") for number in range(300)}
    assert colours == {f"#{colour}" for colour in COLOURS}
    assert drawn("ethereum:0xa", "A") == drawn("ethereum:0xa", "A") != drawn("base:0xa", "B")


@pytest.mark.parametrize("colour", COLOURS)
def test_letters_can_be_read_on_each_colour_and_each_colour_on_both_themes(colour: str) -> None:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4))
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in (red, green, blue)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    assert 1.05 / (luminance + 0.05) >= 4.5, "white letters"
    assert (luminance + 0.05) / 0.05 >= 1.5, "on a black page"


def test_an_own_picture_comes_before_a_drawn_one() -> None:
    assert pictures({"large": "https://a.example/l.png"}, "x", "X") == ("https://a.example/l.png",) * 2
    assert pictures({"small": "s", "large": "l"}, "x", "X") == ("s", "l")
    assert pictures({}, "x", "X") == (drawn("x", "X"),) * 2


def test_a_template_of_the_settings_names_chain_and_contract() -> None:
    assert token_images("https://a.example/{chain}/{address}.png", "base", "0xa") == {
        "small": "https://a.example/base/0xa.png"
    }
    assert token_images("", "base", "0xa") == {}
