"""A worker of the queue with short delays: `python -m tests.indexer.queue_process SETTINGS`.

It commits often, and takes over quickly from processes that are dead or frozen.
"""

from __future__ import annotations

import sys
from functools import partial

from chainfolio.cli.main import main
from chainfolio.indexer import collect, follow, queue_follower, queue_worker
from chainfolio.storage import tail_postgres

FROZEN_S = 3.0
HASTE = (
    (collect, "BATCH_ROWS", 200),
    (follow, "FINALISE_BLOCKS", 10),
    (follow, "FINALISE_S", 0.5),
    (queue_follower, "FINALISE_BLOCKS", 20),
    (queue_follower, "TAKE_EVERY_S", 0.3),
    (queue_worker, "RANGE_BLOCKS", 50),
    (queue_worker, "FIRST_DELAY_S", 0),
    (tail_postgres, "FROZEN_S", FROZEN_S),
    (tail_postgres, "BEAT_S", 0.5),
)


def hurry() -> None:
    """Replace the delays and sizes in this process."""
    for module, name, value in HASTE:
        getattr(module, name)  # a name that is gone would hurry nothing
        setattr(module, name, value)
    quick = partial(queue_worker.QueueWorker, dead_after_s=FROZEN_S, look_every_s=0.3, heartbeat_s=0.5)
    queue_worker.QueueWorker = quick  # type: ignore[misc, assignment]


if __name__ == "__main__":
    hurry()
    sys.exit(main(["worker", "--jobs", "--config", sys.argv[1]]))
