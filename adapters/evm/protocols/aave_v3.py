"""The family `aave` under the name of one release, for files that name it: the contracts say which release they are."""

from __future__ import annotations

from dataclasses import replace

from adapters.evm.protocols import aave

FAMILY = replace(aave.FAMILY, name="aave_v3")
