"""Measure the demo's dashboard in Chromium: first paint, script size, frames while scrolling, memory.

The wallet of many tokens is the demo's: the browser adds copies of its tokens to the response.

python -m bench.face [--repeat 5] [--tokens 5000]
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

from bench.figures import Figure, main, spread
from bench.places import ROOT, MissingPrerequisite
from tests.e2e.browser import PROGRAM, Page
from tests.e2e.dashboard_page import CAROL, opened
from tests.e2e.running import Demo, demonstrated

PAINT_BAR_MS, SIZE_BAR, FRAMES_BAR, MEMORY_BAR_MB = 800, 300_000, 50, 250
PIXELS = 12_000
FRAMES = "devtools.timeline.frame,disabled-by-default-devtools.timeline.frame"  # of a trace
PLACE = f"portfolio?addresses={CAROL}"
CLOCK = """new MutationObserver((_, watch) => { if (document.getElementById('networth')) {
  watch.disconnect(); requestAnimationFrame(() => { window.shownAt = performance.now(); }); } })
  .observe(document, {childList: true, subtree: true});"""
COPIES = """const real = fetch; window.fetch = async (path, ...more) => {
  const answer = await real(path, ...more);
  if (!path.startsWith('/v1/portfolio')) return answer;
  const documents = await answer.json();
  const groups = Object.values(Object.values(documents[0].assetByProtocols.wallet.chains)[0].protocolPositions);
  const group = groups.find(each => each.assets.some(asset => asset.value !== 'N/A'));
  const one = group.assets.find(asset => asset.value !== 'N/A');
  for (let number = 0; number < TOKENS; number += 1)
    group.assets.push({...one, symbol: `t${number}`, chainContract: `local:${number}`});
  return new Response(JSON.stringify(documents), {status: 200});
};"""
DRAW_ALL = """(async () => { for (;;) {
  const more = [...document.querySelectorAll('.holdings td[colspan] button')].pop();
  if (!more) return document.querySelectorAll('tr.asset').length;
  more.click(); await new Promise(requestAnimationFrame); } })()"""


async def paint_ms(demo: Demo, folder: Path) -> tuple[float, float]:
    """Return the milliseconds until the first paint and until the net worth is shown; the cache is empty."""
    async with opened(demo, folder, PLACE, script=CLOCK) as page:
        await page.once("document.getElementById('networth')")
        await page.says("new Promise(requestAnimationFrame)")
        first, net_worth = await page.says(
            "[performance.getEntriesByName('first-contentful-paint')[0].startTime, shownAt]"
        )
        return first, net_worth


async def scrolled(demo: Demo, folder: Path, tokens: int) -> tuple[float, float, int]:
    """Return frames per second during a scroll, megabytes of heap, and the number of drawn tokens."""
    async with opened(demo, folder, PLACE, script=COPIES.replace("TOKENS", str(tokens))) as page:
        await page.once("document.querySelector('[data-ready]')")
        drawn = await page.says(DRAW_ALL)
        await page.do(
            "Tracing.start",
            categories=FRAMES,
            transferMode="ReturnAsStream",
        )
        await page.do(
            "Input.synthesizeScrollGesture", x=640, y=450, yDistance=-PIXELS, speed=4000, gestureSourceType="mouse"
        )
        await page.do("Tracing.end")
        frames = await frames_per_second(page)
        heap = await page.do("Runtime.getHeapUsage")
        return frames, heap["totalSize"] / 2**20, drawn


async def frames_per_second(page: Page) -> float:
    """Return the rate of the frames that were drawn during the trace; waits until the trace is complete."""
    while not (ended := [each for each in page.events if each["method"] == "Tracing.tracingComplete"]):
        await page.says("new Promise(done => setTimeout(done, 50))")
    text, stream = "", ended[-1]["params"]["stream"]
    while True:
        part = await page.do("IO.read", handle=stream)
        text += part["data"]
        if part["eof"]:
            break
    drawn = sorted(each["ts"] for each in trace_of(text) if each["name"] == "DrawFrame")
    if len(drawn) < 2:
        return 0.0
    seconds: float = (drawn[-1] - drawn[0]) / 1e6
    return (len(drawn) - 1) / seconds


def trace_of(text: str) -> list[dict[str, Any]]:
    """Return the events of a trace in JSON."""
    parsed: dict[str, list[dict[str, Any]]] = json.loads(text)
    return parsed["traceEvents"]


def script_bytes() -> int:
    """Return the size of all scripts of the page, each compressed alone."""
    return sum(len(gzip.compress(path.read_bytes())) for path in (ROOT / "dashboard" / "static").rglob("*.js"))


async def measure(demo: Demo, options: argparse.Namespace) -> list[Figure]:
    """Measure paints, scrolling and scripts, each in a new browser, and return the figures."""
    paints = []
    for number in range(options.repeat):
        with tempfile.TemporaryDirectory(prefix=f"face{number}") as folder:
            paints.append(await paint_ms(demo, Path(folder)))
    with tempfile.TemporaryDirectory(prefix="face") as folder:
        frames, heap_mb, drawn = await scrolled(demo, Path(folder), options.tokens)
    net_worth_ms, size = [each for _, each in paints], script_bytes()
    median = sorted(net_worth_ms)[len(net_worth_ms) // 2]
    return [
        Figure("face", "first paint of the demo, cold cache, ms", spread([each for each, _ in paints], 0)),
        Figure(
            "face",
            "net worth is shown, cold cache, ms",
            spread(net_worth_ms, 0),
            f"≤ {PAINT_BAR_MS}",
            median <= PAINT_BAR_MS,
        ),
        Figure("face", "scripts, gzipped, bytes", f"{size:,}", f"≤ {SIZE_BAR:,}", size <= SIZE_BAR),
        Figure(
            "face",
            f"frames/s while a wallet of {drawn:,} tokens scrolls",
            f"{frames:.0f}",
            f"≥ {FRAMES_BAR}",
            frames >= FRAMES_BAR,
        ),
        Figure("face", "heap of that page, MB", f"{heap_mb:.0f}", f"≤ {MEMORY_BAR_MB}", heap_mb <= MEMORY_BAR_MB),
    ]


def run(options: argparse.Namespace) -> list[Figure]:
    """Start a demo and measure its page; MissingPrerequisite without Chromium."""
    if PROGRAM is None:
        raise MissingPrerequisite("there is no Chromium here")
    with tempfile.TemporaryDirectory(prefix="demo") as folder, demonstrated(Path(folder)) as demo:
        return asyncio.run(measure(demo, options))


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=5_000)


if __name__ == "__main__":
    main(__doc__, run, add)
