"""The family `aave` under the name of one release, for files that name it: the contracts say which release they are."""

from __future__ import annotations

from adapters.evm.positions.rules import Family
from adapters.evm.protocols import aave

FAMILY = Family("aave_v2", rules=aave.RULES, position=aave.position, unwrap=aave.unwrap)
