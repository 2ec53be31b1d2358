// The transaction that ends an approval, for the owner's own wallet to sign: this page holds no key and sends nothing.
import { button, el } from "./dom.js";
import { TEXTS } from "./texts.js";

const ADDRESS = /^0x[0-9a-f]{40}$/i;
const NOBODY = `0x${"0".repeat(40)}`;

const hex = (value) => (ADDRESS.test(value) ? value.slice(2).toLowerCase() : BigInt(value).toString(16));
const word = (value) => hex(value).padStart(64, "0");

// A call of a contract: its address, function, selector, and the types and values of its arguments.
function call(to, name, selector, args) {
  const fields = args.map(([type, value]) => `${type}=${value}`).join("&");
  return { to, data: `0x${selector}${args.map(([, value]) => word(value)).join("")}`, path: `${name}?${fields}` };
}

// What ends an approval of the API: of a token, of Permit2, of one collectible or of a collection. Null off the EVM.
export function ending(row) {
  if (![row.contract, row.from, row.to, row.permit2 ?? NOBODY].every((each) => ADDRESS.test(each))) return null;
  const spender = ["address", row.to];
  if (row.permit2) {
    const args = [["address", row.contract], spender, ["uint160", "0"], ["uint48", "0"]];
    return call(row.permit2, "approve", "87517c45", args);
  }
  if (row.tokenId) return call(row.contract, "approve", "095ea7b3", [["address", NOBODY], ["uint256", row.tokenId]]);
  if (row.standard) return call(row.contract, "setApprovalForAll", "a22cb465", [spender, ["bool", "0"]]);
  return call(row.contract, "approve", "095ea7b3", [spender, ["uint256", "0"]]);
}

// The unsigned transaction, to copy or to open in a wallet by a link as in EIP-681; null where there is none.
export function revocation(chain, row) {
  const made = ending(row);
  const chainId = Number(chain.chainId);
  if (!made || !Number.isSafeInteger(chainId)) return null;
  const text = JSON.stringify({ chainId, from: row.from, to: made.to, value: "0x0", data: made.data }, null, 2);
  const link = `ethereum:${made.to}@${chainId}/${made.path.replace("bool=0", "bool=false")}`;
  const copied = el("span", { class: "faint", role: "status" });
  const copy = () => navigator.clipboard.writeText(text)
    .then(() => copied.replaceChildren(TEXTS.revoke.copied), () => copied.replaceChildren(TEXTS.revoke.notCopied));
  return el("details", { class: "revocation" }, el("summary", {}, TEXTS.revoke.title), el("p", {}, TEXTS.revoke.text),
    el("pre", { tabindex: "0" }, text), button(TEXTS.revoke.copy, copy), " ",
    el("a", { href: link }, TEXTS.revoke.open), " ", copied);
}
