"""The pipeline of a request: the tuples below are the order of its steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from chainfolio.api.admission import ADMIT
from chainfolio.api.auth import AUTHENTICATE
from chainfolio.api.context import Answer, Context, Proceed, Step, encoded
from chainfolio.api.schema import SCHEMA


async def work(context: Context, proceed: Proceed) -> Answer:
    """Call the handler and return its result as an Answer; other results than Answer are encoded as JSON."""
    answer = await context.route.handler(context, **context.arguments)
    if isinstance(answer, Answer):
        return answer
    return encoded(_zeroed(answer) if context.parts.settings.server.unpriced == "zero" else answer)


def _zeroed(answer: object) -> object:
    from chainfolio.portfolio.zeroed import zero_unknown  # only imported if the setting `unpriced` needs it

    return zero_unknown(answer)


WORK = Step("work", work)

KEYED: Final = (
    AUTHENTICATE,  # 401, before any data of an account is read
    ADMIT,  # 429, then 401 or 403 for an entitlement, 400, 402; a refused request has reserved no credits
    WORK,
)
PUBLIC: Final = (
    SCHEMA,
    WORK,
)


async def _end(context: Context) -> Answer:
    raise AssertionError(f"no step answered {context.route.name}")


def chain_steps(steps: Sequence[Step]) -> Callable[[Context], Awaitable[Answer]]:
    """Return the steps as one function; each step gets the following ones as `proceed`."""
    proceed: Proceed = _end
    for step in reversed(steps):
        proceed = _prepend(proceed, step)
    return proceed


def _prepend(proceed: Proceed, step: Step) -> Proceed:
    return lambda context: step.run(context, proceed)
