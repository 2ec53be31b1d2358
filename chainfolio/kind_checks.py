"""Validation of a kind of chain from a package, and of its chains, before they are used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from chainfolio.capabilities import CAPABILITY_PROTOCOLS, Capability
from chainfolio.chain_results import ChainInfo
from chainfolio.chains import Chain
from chainfolio.datasets import Dataset
from chainfolio.tables import TABLES

CAIP2: Final = re.compile(r"[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}")
MEMBERS: Final = tuple(name for name in vars(Chain) if not name.startswith("_"))
METHODS: Final = {
    capability: tuple(name for name in vars(protocol) if not name.startswith("_"))
    for capability, protocol in CAPABILITY_PROTOCOLS.items()
}
MEANING: Final = ("table", "standards", "history")


def kind_fault(name: str, kind: Any, datasets: Mapping[str, Dataset]) -> str:
    """Return the problem of a kind, given the datasets of other kinds; an empty text if it is valid."""
    try:
        kind_name, kind_datasets = kind.name, dict(kind.datasets)
    except Exception as error:  # third-party code: any exception is its fault
        return f"{type(error).__name__}: {error}"
    if kind_name != name:
        return f"it calls itself `{kind_name!s:.50}`"
    return next(filter(None, (_dataset_fault(name, each, datasets) for name, each in kind_datasets.items())), "")


def _dataset_fault(name: str, dataset: object, datasets: Mapping[str, Dataset]) -> str:
    """Return the problem of a kind's dataset, given those of other kinds by name; empty if it is valid."""
    if not isinstance(dataset, Dataset) or dataset.name != name:
        return f"what it has as the dataset `{name!s:.50}` is none of this name"
    if dataset.table != TABLES.get(dataset.table.name):
        return f"its dataset `{name}` fills `{dataset.table.name}`, which is no table here or one of other columns"
    if dataset.history and dataset.history not in TABLES:
        return f"its dataset `{name}` goes into `{dataset.history}`, which is no table here"
    namesake = datasets.get(name, dataset)
    if any(getattr(dataset, each) != getattr(namesake, each) for each in MEANING):
        return f"its dataset `{name}` has another table, standards or history than that of another kind"
    rivals = (each for each in datasets.values() if each.history == dataset.history and each.account_rows)
    if dataset.account_rows and any(each.name != name for each in rivals):
        return f"another kind's dataset says already how the rows of `{dataset.history}` are made"
    return ""


def chain_fault(chain: Chain, key: str, kind: str, datasets: Mapping[str, Dataset]) -> str:
    """Return the problem of a chain that a kind made; an empty text if it is valid."""
    if missing := [name for name in MEMBERS if not hasattr(chain, name)]:
        return f"it lacks {', '.join(missing)}"
    if (chain.key, chain.kind) != (key, kind):
        return f"it calls itself {chain.key!s:.50} of the kind {chain.kind!s:.50}"
    if not CAIP2.fullmatch(str(chain.caip2)):
        return f"{chain.caip2!s:.50} is no CAIP-2 name"
    if not isinstance(chain.info, ChainInfo) or chain.info.native.asset.chain != chain.caip2:
        return f"its native asset is not one of {chain.caip2}"
    if unknown := [name for name in (*chain.datasets, *chain.default_datasets) if name not in datasets]:
        return f"it has datasets that its kind lacks: {', '.join(map(str, unknown))}"
    return next(filter(None, (_capability_fault(chain, each) for each in chain.capabilities)), "")


def _capability_fault(chain: Chain, capability: object) -> str:
    if not isinstance(capability, Capability):
        return f"{capability!s:.50} is no capability"
    lacks = [name for name in METHODS.get(capability, ()) if not hasattr(chain, name)]
    return f"it declares `{capability}` without {', '.join(lacks)}" if lacks else ""
