// Collectibles by collection: names and attributes of their metadata, and the call that says who holds each.
import * as api from "./api.js";
import { addressBar, chosen, labelOf } from "./addresses.js";
import { badge, busy, button, el, failure, hash, logo, name } from "./dom.js";
import { TEXTS } from "./texts.js";
import { callTable } from "./why.js";

const MOST = 60; // items of a collection that are shown at first
const isSpam = (each) => each.spam || each.items.every((item) => item.spam);

function facts(item) {
  const rows = [[TEXTS.tokenId, item.tokenId], [TEXTS.metadataProblem, item.metadataProblem],
    [TEXTS.metadataUri, item.metadataUri], [TEXTS.blockNumber, item.sources?.blockNumber],
    [TEXTS.blockHash, item.sources?.blockHash]].filter(([, value]) => value);
  return el("dl", {}, ...rows.flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, name(value, 300))]));
}

function traits(item) {
  if (!item.attributes?.length) return null;
  const omitted = item.omittedAttributes;
  return el("div", { class: "chips" }, ...item.attributes.map((each) =>
    el("span", { class: "badge" }, name(each.name ? `${each.name}: ${each.value}` : each.value, 60))),
  omitted ? el("span", { class: "faint" }, TEXTS.moreAttributes(omitted)) : null);
}

function card(item) {
  const many = item.balance === "1" ? null : el("span", { class: "faint" }, `× ${item.balance}`);
  return el("li", { class: "nft", "data-token": item.tokenId, "data-balance": item.balance },
    el("details", {}, el("summary", {}, logo(item.imgSmall), " ", name(item.name || `#${item.tokenId}`, 40), " ", many,
      item.spam ? badge(TEXTS.spam, "bad") : null),
    traits(item), facts(item), callTable(item.sources?.calls)));
}

function collection(each, many) {
  const list = el("ul", { class: "parts" }, ...each.items.slice(0, MOST).map(card)), rest = each.items.slice(MOST);
  const more = rest.length ? button(TEXTS.more(rest.length), () => {
    list.append(...rest.map(card));
    more.remove();
  }) : null;
  const reasons = each.spam ? (each.spamReasons ?? []).join(", ") : "";
  return el("section", { class: "card collection", "data-collection": each.contractAddress },
    el("div", { class: "row" }, logo(each.imgSmall),
      el("h2", {}, each.name ? name(each.name, 60) : hash(each.contractAddress)),
      el("span", { "data-count": each.count }, `× ${each.count}`),
      isSpam(each) ? badge(name(reasons ? `${TEXTS.spam}: ${reasons}` : TEXTS.spam, 60), "bad") : null),
    el("div", { class: "row faint" }, name(each.chainKey, 30), hash(each.contractAddress),
      many ? name(labelOf(each.owner)) : null), list, more);
}

function show(place, documents, hidden) {
  const found = documents.flatMap((document) =>
    Object.values(document.nftsByCollection ?? {}).map((each) => ({ ...each, owner: document.address })));
  const spam = found.filter(isSpam), shown = hidden ? found.filter((each) => !isSpam(each)) : found;
  const issues = documents.flatMap((each) => each.issues).filter((each) => each.adapter === "collectibles");
  const turn = () => {
    show(place, documents, !hidden);
    document.getElementById("spam").focus();
  };
  place.replaceChildren(el("section", { class: "card" }, el("h2", {}, TEXTS.pages.nfts),
    el("p", { class: "faint" }, found.length ? TEXTS.nftsText : TEXTS.noNfts),
    spam.length ? button(TEXTS.hideSpamCollections(spam.length), turn, { class: "chip", id: "spam",
      "aria-pressed": String(hidden) }) : null,
    issues.length ? el("details", {}, el("summary", {}, `${TEXTS.issues} (${issues.length})`), el("ul", {},
      ...issues.map((each) => el("li", {}, name(`${each.subject}: ${each.reason}`, 400))))) : null),
  ...shown.map((each) => collection(each, documents.length > 1)));
}

export async function nfts(page, view) {
  const addresses = chosen(view.fields), place = el("div", {}, busy());
  page.replaceChildren(await addressBar(view), place);
  if (!addresses.length) return place.replaceChildren(el("p", { class: "card" }, TEXTS.empty));
  try {
    const documents = await api.get("/v1/portfolio",
      { addresses: addresses.join(), includeNFTs: "true", includeImages: "true", includeSources: "true" });
    show(place, documents, true);
    page.dataset.ready = "yes";
  } catch (error) {
    place.replaceChildren(failure(error, () => nfts(page, view)));
  }
}
