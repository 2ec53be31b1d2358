// What the pages with charts share: uPlot, loaded when the first chart is drawn, and a chart that follows its width.
import { el } from "./dom.js";
import { TEXTS } from "./texts.js";

let library = null;
export function chartLibrary() {
  library ??= new Promise((done, failed) => {
    document.head.append(el("link", { rel: "stylesheet", href: "/dashboard/uplot.min.css" }),
      el("script", { src: "/dashboard/uplot.min.js", onload: () => done(window.uPlot),
        onerror: () => failed(new Error(TEXTS.noAnswer)) }));
  });
  return library;
}

export const colour = (variable) => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();

// Draw a chart in a place again whenever the place has another width.
export function redrawn(place, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth !== width) {
      width = place.clientWidth;
      draw();
    }
  }).observe(place);
  return place;
}
