"""The family `aave` under the name of one release: contracts say which release they are."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Family
from chainfolio.adapters.evm.protocols import aave

FAMILY = Family("aave_v2", rules=aave.RULES, position=aave.position, unwrap=aave.unwrap)
