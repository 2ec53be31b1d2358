"""Explanations of failed plug-in imports; names the new module if the plug-in needs an older release."""

from __future__ import annotations

from typing import Final

# Top-level modules of releases before `chainfolio.plugins`, and the modules that replace them.
OLD: Final = {
    "adapters.solana": "chainfolio.plugins.solana_protocol",
    "adapters": "chainfolio.plugins.protocol",
    "pricing": "chainfolio.plugins.price_source",
} | dict.fromkeys(
    (
        "agents",
        "alerts",
        "api",
        "cli",
        "configs",
        "engine",
        "exports",
        "indexer",
        "localchain",
        "portfolio",
        "storage",
        "transport",
    ),
    "chainfolio.plugins",
)


def load_fault(error: BaseException) -> str:
    """Return the error of importing a plug-in as a sentence."""
    message = f"{type(error).__name__}: {error}"
    name = (error.name if isinstance(error, ImportError) else "") or ""
    new = next((new for old, new in OLD.items() if name == old or name.startswith(f"{old}.")), "")
    return f"{message}; `{name}` is of an older release: import from `{new}`" if new else message
