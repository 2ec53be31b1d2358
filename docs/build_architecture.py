"""Writes `docs/images/architecture.svg` from the imports of the code: `python -m docs.build_architecture`.

An arrow goes from a part to a part that it imports. An arrow that follows from two others is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grimp

PICTURE = Path(__file__).parent / "images" / "architecture.svg"
ROWS = (
    ("session", "exports", "agents", "alerts", "cli", "api"),
    ("engine",),
    ("indexer",),
    ("adapters", "pricing", "portfolio", "storage"),
    ("transport",),
    ("chainfolio",),
)
ABOUT = {
    "session": "the Python API",
    "cli": "the command line",
    "api": "the HTTP API",
    "exports": "writes files",
    "agents": "answers models",
    "alerts": "tells of events",
    "engine": "answers questions",
    "indexer": "writes the index",
    "adapters": "reads chains",
    "pricing": "price sources",
    "portfolio": "exact sums",
    "storage": "lake, tail, state",
    "transport": "asks endpoints",
    "chainfolio": "shared types and contracts",
}
NOT_DRAWN = ("", "__main__", "configs", "localchain", "plugins")  # names for others, data, and the chain of the tests
WIDTH, HEIGHT = 950, 620
BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT, TOP = 150, 52, 102, 28
# The colours suit a light page and a dark one: the picture brings its own background.
HEAD = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" role="img">
<title>The parts of Chainfolio, and which part imports which</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 8 4 0 8z" fill="#5c6bc0"/></marker></defs>
<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#f7f8fc"/>
"""


def imports() -> set[tuple[str, str]]:
    """The pairs of parts of which the first one imports the second one, without those that follow from others."""
    graph = grimp.build_graph("chainfolio", cache_dir=None)
    pairs = {
        (_part(importer), _part(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }
    pairs = {(upper, lower) for upper, lower in pairs if upper and lower and upper != lower}
    return {(upper, lower) for upper, lower in pairs if not _follows(upper, lower, pairs)}


def _part(module: str) -> str:
    """The folder of a module; the shared modules lie in `chainfolio` itself. Empty for what is not drawn."""
    name = module.split(".")[1] if "." in module else ""
    if name in ("session", "async_session"):
        return "session"
    return "" if name in NOT_DRAWN else name if name in ABOUT else "chainfolio"


def _follows(upper: str, lower: str, pairs: set[tuple[str, str]]) -> bool:
    """Return True if `upper` depends on `lower` through another part."""
    reached, waiting = set[str](), [part for start, part in pairs if start == upper and part != lower]
    while waiting:
        part = waiting.pop()
        if part not in reached:
            reached.add(part)
            waiting += [end for start, end in pairs if start == part]
    return lower in reached


def _drawn() -> list[list[str]]:
    """The parts of each row."""
    drawn = {part for pair in imports() for part in pair}
    return [[part for part in row if part in drawn] for row in ROWS]


def places() -> dict[str, tuple[float, float]]:
    """The middle of the upper edge of each part's box."""
    found = dict[str, tuple[float, float]]()
    for row, parts in enumerate(_drawn()):
        step = WIDTH / 5
        first = WIDTH / 2 - step * (len(parts) - 1) / 2
        found.update({part: (first + step * at, TOP + ROW_HEIGHT * row) for at, part in enumerate(parts)})
    between = (found["adapters"][0] + found["pricing"][0]) / 2  # arrows from above pass between the two
    found["transport"] = (between, found["transport"][1])
    return found


def picture() -> str:
    """The whole picture."""
    return HEAD + "\n".join([*_arrows(), *_boxes()]) + "\n</svg>\n"


def _arrows() -> Iterator[str]:
    at = places()
    for upper, lower in sorted(imports()):
        (x1, y1), (x2, y2) = at[upper], at[lower]
        if y1 == y2:
            side = BOX_WIDTH / 2 if x2 > x1 else -BOX_WIDTH / 2
            path = f"M{x1 + side:.0f} {y1 + BOX_HEIGHT / 2:.0f}H{x2 - side:.0f}"
        else:
            if lower == "chainfolio":  # a wide box: straight down
                x2 = x1
            start, end = y1 + BOX_HEIGHT, min(y2, y1 + ROW_HEIGHT)  # below the next row it goes straight down
            middle = (start + end) / 2
            path = f"M{x1:.0f} {start:.0f}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {end:.0f}"
            path += f"V{y2:.0f}" if end < y2 else ""
        yield f'<path d="{path}" fill="none" stroke="#5c6bc0" stroke-width="1.6" marker-end="url(#tip)"/>'


def _boxes() -> Iterator[str]:
    for part, (x, y) in places().items():
        width = WIDTH - 40 if part == "chainfolio" else BOX_WIDTH
        yield (
            f'<rect x="{x - width / 2:.0f}" y="{y:.0f}" width="{width}" height="{BOX_HEIGHT}" rx="6" fill="#fff" '
            'stroke="#3949ab"/>'
            f'<text x="{x:.0f}" y="{y + 22:.0f}" text-anchor="middle" font-size="16" font-weight="600" '
            f'fill="#1a237e">{part}</text>'
            f'<text x="{x:.0f}" y="{y + 41:.0f}" text-anchor="middle" font-size="13" fill="#37474f">'
            f"{ABOUT[part]}</text>"
        )


if __name__ == "__main__":
    PICTURE.write_text(picture())
