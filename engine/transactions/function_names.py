"""Names of contract functions, and transaction types of their calls, by selector: `functions.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path

import msgspec

from chainfolio.errors import BadSettings
from chainfolio.indexer.file_versions import FileVersion
from chainfolio.portfolio.activity import Functions
from chainfolio.portfolio.transactions import TransactionType


class File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file: signatures such as `transfer(address,uint256)`, and those that stand for a type."""

    signatures: list[str]
    types: dict[TransactionType, list[str]] = {}


def load(path: Path, *selectors: Callable[[str], bytes]) -> Functions:
    """Load the functions of a file, by the selectors of kinds of chain (`SelectsFunctions`).

    Names are the parts before the parenthesis, without a module. Functions of `types` also have a type. A file that did
    not change is read once in a process.

    Raises:
        BadSettings: The file cannot be read, two different functions have the same selector, or a function two types.
    """
    try:
        return _load(FileVersion.of(path), selectors)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadSettings(path.name, str(error)) from None


@lru_cache(maxsize=8)
def _load(version: FileVersion, selectors: Sequence[Callable[[str], bytes]]) -> Functions:
    """Return the names and types of a file's functions by selector; cached.

    Raises:
        BadSettings: Functions with one selector have several names or types.
    """
    path = version.path
    file = msgspec.convert(tomllib.loads(path.read_text()), File)
    functions = Functions({}, {})
    for type_, signatures in ((None, file.signatures), *file.types.items()):
        for function, selector in product(signatures, selectors):
            name, start = function.partition("(")[0].rpartition(":")[2], selector(function)
            other_name = functions.names.setdefault(start, name)
            if other_name != name:
                raise BadSettings(path.name, f"{function} begins like {other_name}")
            if type_ and functions.types.setdefault(start, type_) != type_:
                raise BadSettings(path.name, f"{function} is both {functions.types[start]} and {type_}")
    return functions
