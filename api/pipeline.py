"""The order in which a request is checked and worked on: the lists below are the order, and there is no other place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from chainfolio.api.admission import ADMIT
from chainfolio.api.auth import AUTHENTICATE
from chainfolio.api.context import Answer, Context, Proceed, Step, encoded
from chainfolio.api.schema import SCHEMA


async def work(context: Context, proceed: Proceed) -> Answer:
    """Call the handler and encode what it returns: an answer that cannot be encoded has failed like any other."""
    answer = await context.route.handler(context, **context.arguments)
    if isinstance(answer, Answer):
        return answer
    return encoded(_zeroed(answer) if context.parts.settings.server.unpriced == "zero" else answer)


def _zeroed(answer: object) -> object:
    from chainfolio.portfolio.zeroed import zero_unknown  # here, for few settings ask for it

    return zero_unknown(answer)


WORK = Step("work", work)

KEYED: Final = (
    AUTHENTICATE,  # 401, before anything is looked at that belongs to somebody
    ADMIT,  # 429, then 401 or 403 for an entitlement, 400, 402: whoever is refused has reserved nothing
    WORK,
)
PUBLIC: Final = (
    SCHEMA,
    WORK,
)


async def _end(context: Context) -> Answer:
    raise AssertionError(f"no step answered {context.route.name}")


def chained(steps: Sequence[Step]) -> Callable[[Context], Awaitable[Answer]]:
    """The steps as one function: each is given the rest of them as `proceed`."""
    proceed: Proceed = _end
    for step in reversed(steps):
        proceed = _before(proceed, step)
    return proceed


def _before(proceed: Proceed, step: Step) -> Proceed:
    return lambda context: step.run(context, proceed)
