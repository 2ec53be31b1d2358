// Days as the API writes them, and the subscription that their values need.
import * as api from "./api.js";
import { chosen } from "./addresses.js";
import { button, el, failure } from "./dom.js";
import { TEXTS } from "./texts.js";

const COST = 1200; // credits of one address for a year

const text = (time) => new Date(time).toISOString().slice(0, 10);

export const daysBefore = (day, count) => text(Date.parse(day) - count * 86_400_000);

// The last day to show: that of the address of the page, else today in UTC.
export function lastDay(fields) {
  const given = fields.get("to") ?? "";
  return /^\d{4}-\d\d-\d\d$/.test(given) && !Number.isNaN(Date.parse(given)) ? given : text(Date.now());
}

export function needsSubscription(view) {
  const addresses = chosen(view.fields);
  const place = el("div", { class: "notice" });
  const subscribe = async () => {
    try {
      for (const address of addresses) {
        // One after the other: one that is subscribed already must not stop the others.
        await api.post("/v1/subscribe-snapshot", { addresses: [{ address }] }).catch((error) => {
          if (error.status !== 409) throw error;
        });
      }
      await view.render();
    } catch (error) {
      place.append(failure(error));
    }
  };
  place.append(el("span", {}, TEXTS.needsDays), button(TEXTS.subscribe(COST * addresses.length), subscribe));
  return place;
}
