"""Wallets of many chains: their holdings, the value of these, and their history.

The public names are those of `__all__`, `chainfolio.errors` and `chainfolio.plugins`. Every other module is private,
and may change with any release.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` for it costs more than all else here
if TYPE_CHECKING:
    from chainfolio.async_session import AsyncSession
    from chainfolio.session import Session, connect, open

__version__ = "1.0.0"  # of the package, the command and the OpenAPI document
__all__ = ["AsyncSession", "Session", "__version__", "connect", "open"]
_PLACES = {"AsyncSession": "chainfolio.async_session"} | dict.fromkeys(
    ("Session", "connect", "open"), "chainfolio.session"
)


def __getattr__(name: str) -> object:
    """Return a public name, imported at its first use, so that importing the package is cheap.

    Raises:
        AttributeError: there is no such public name.
    """
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
