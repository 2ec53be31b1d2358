"""What functions are called, and what calls to them stand for, by the selectors of call data: `functions.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from itertools import product
from pathlib import Path

import msgspec

from chainfolio.errors import BadSettings
from chainfolio.portfolio.activity import Functions
from chainfolio.portfolio.transactions import TransactionType


class File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file: signatures such as `transfer(address,uint256)`, and those that stand for a type."""

    signatures: list[str]
    types: dict[TransactionType, list[str]] = {}


def load(path: Path, *selectors: Callable[[str], bytes]) -> Functions:
    """The table in a file, by the selectors of kinds of chain (`SelectsFunctions`).

    BadSettings where two of its functions begin alike and are not the same.
    """
    try:
        written = msgspec.convert(tomllib.loads(path.read_text()), File)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadSettings(path.name, str(error)) from None
    found = Functions({}, {})
    for type_, signatures in ((None, written.signatures), *written.types.items()):
        for function, selector in product(signatures, selectors):
            name, start = function.partition("(")[0].rpartition(":")[2], selector(function)
            known = found.names.setdefault(start, name)
            if known != name:
                raise BadSettings(path.name, f"{function} begins like {known}")
            if type_ and found.types.setdefault(start, type_) != type_:
                raise BadSettings(path.name, f"{function} is both {found.types[start]} and {type_}")
    return found
