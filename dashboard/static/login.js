// The page for whoever has no session.
import * as api from "./api.js";
import { el } from "./dom.js";
import { TEXTS } from "./texts.js";

export function login(render, refused) {
  const field = el("input", { id: "key", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const said = el("p", { class: "bad", role: "alert" }, refused?.message ?? "");
  async function enter(event) {
    event.preventDefault();
    try {
      await api.logIn(field.value.trim());
      await render();
    } catch (error) {
      said.textContent = error.message;
    }
  }
  return el("form", { class: "card login", onsubmit: enter },
    el("h1", {}, TEXTS.loginTitle), el("p", {}, TEXTS.loginText),
    el("label", { for: "key" }, TEXTS.apiKey), field, said,
    el("button", { type: "submit", class: "main" }, TEXTS.loginDo), el("p", { class: "faint" }, TEXTS.loginHint));
}
