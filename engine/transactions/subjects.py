"""A chain of a list of activities, with the accounts and datasets that are read."""

from __future__ import annotations

from dataclasses import dataclass

from chainfolio.contracts import Issue
from chainfolio.datasets import Dataset
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.portfolio.facts import ChainFacts


@dataclass(frozen=True, slots=True)
class Subject:
    """One chain to read, and the accounts of its kind. `datasets` are those that its operator indexes."""

    snapshotter: Snapshotter
    facts: ChainFacts
    datasets: tuple[str, ...]
    accounts: tuple[str, ...]

    @property
    def key(self) -> str:
        """The chain's key."""
        return self.snapshotter.chain.key

    @property
    def issues(self) -> list[Issue]:
        """Return an issue for each dataset of the chain that its operator does not index."""
        return [
            Issue(self.key, each.name, f"{each.loss} (dataset `{each.name}`)")
            for each in self._activity_datasets
            if each.loss and each.name not in self.datasets
        ]

    @property
    def required_datasets(self) -> tuple[str, ...]:
        """Return the datasets that a page needs: without them it would lack records and not say so."""
        return tuple(each.name for each in self._activity_datasets if not each.loss or each.name in self.datasets)

    @property
    def _activity_datasets(self) -> list[Dataset]:
        """Return the chain's datasets of activities, the indispensable ones first."""
        datasets = self.snapshotter.chain.datasets.values()
        of_activity = [each for each in datasets if each.in_activity and not each.reward_protocol]
        return sorted(of_activity, key=lambda each: bool(each.loss))
