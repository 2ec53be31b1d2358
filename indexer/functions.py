"""Names of functions by the first four bytes of call data, from `configs/functions.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from adapters.evm.call import signature
from chainfolio.errors import BadSettings


class Functions(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file: signatures such as `transfer(address,uint256)`."""

    signatures: list[str]


def load(path: Path) -> dict[bytes, str]:
    """The table in a file; BadSettings where two of its functions with other names begin alike."""
    try:
        written = msgspec.convert(tomllib.loads(path.read_text()), Functions).signatures
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadSettings(path.name, str(error)) from None
    names: dict[bytes, str] = {}
    for function in written:
        name = function.partition("(")[0]
        if names.setdefault(signature(f"{function}()").selector, name) != name:
            raise BadSettings(path.name, f"{function} begins like {names[signature(f'{function}()').selector]}")
    return names
