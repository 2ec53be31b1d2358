"""Pictures of chains, protocols and tokens.

They are those of the settings or of `configs/`, else drawn from the name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

# White letters on each of these have a contrast of at least 4.5, and each is seen on a white and on a black page.
COLOURS: Final = (
    "b91c1c",
    "c2410c",
    "a16207",
    "4d7c0f",
    "15803d",
    "047857",
    "0f766e",
    "0e7490",
    "0369a1",
    "1d4ed8",
    "4338ca",
    "6d28d9",
    "7e22ce",
    "a21caf",
    "be185d",
    "57534e",
)
MAX_LETTERS: Final = 2  # more cannot be read at 16 pixels
MAX_DRAWN: Final = 4_096  # pictures that are remembered
_DRAWING: Final = (
    "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'%20viewBox='0%200%2032%2032'%3E"
    "%3Ccircle%20cx='16'%20cy='16'%20r='16'%20fill='%23{colour}'/%3E"
    "%3Ctext%20x='16'%20y='21.5'%20text-anchor='middle'%20font-family='sans-serif'%20font-weight='bold'"
    "%20font-size='16'%20fill='white'%3E{letters}%3C/text%3E%3C/svg%3E"
)


@lru_cache(MAX_DRAWN)
def drawn(subject: str, label: str) -> str:
    """Return a drawn picture as a data URL.

    It is a disc in a colour of the subject, with the first letters of a label.

    A data URL is absolute, as clients insist, and tells no third party who reads it. Only Latin letters and digits of
    the label are shown. Equal arguments give equal pictures.

    Args:
        subject: What the picture stands for, such as `token ethereum:0x…`.
        label: Symbol or name, by anybody.
    """
    colour = COLOURS[hashlib.sha256(subject.encode("utf-8", "replace")).digest()[0] % len(COLOURS)]
    letters = [each for each in label if each.isascii() and each.isalnum()][:MAX_LETTERS]
    return _DRAWING.format(colour=colour, letters="".join(letters).upper())


def pictures(images: Mapping[str, str], subject: str, label: str) -> tuple[str, str]:
    """Return the small and the large picture: a missing one is replaced by the other, both by a drawn one."""
    small = images.get("small") or images.get("large") or drawn(subject, label)
    return small, images.get("large") or small


def token_images(template: str, chain: str, contract: str) -> dict[str, str]:
    """Return the images of a token by a template of the settings; none without a template."""
    return {"small": template.replace("{chain}", chain).replace("{address}", contract)} if template else {}


def named_images(template: str, key: str) -> dict[str, str]:
    """Return the images of a chain or a protocol by a template of the settings; none without a template."""
    return {"small": template.replace("{key}", key)} if template else {}
