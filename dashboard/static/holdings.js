// Portfolios as a tree: chain → protocol → position → asset; and what is in no sum.
import { add, isKnown, negate } from "./decimal.js";
import { TEXTS } from "./texts.js";

const SIDES = {
  assets: "", supplyAssets: "", dexAssets: "", baseAssets: "", quoteAssets: "", marginAssets: "",
  rewardAssets: "reward", borrowAssets: "borrowed", collateralizeNFTAssets: "",
};

// Symbols come in small letters, and some tokens have none.
export const symbolOf = (asset) => asset.symbol?.toUpperCase() || TEXTS.unnamed;

// One asset of a document as a leaf; what is borrowed counts against the others.
function leaf(asset, side, owner) {
  const value = side === "borrowed" ? negate(asset.value) : asset.value;
  const id = `${asset.chainContract}:${side}`;
  const picture = asset.imgSmall;
  return { kind: "asset", id, label: symbolOf(asset), full: asset.name, value, side, asset, owner, picture };
}

function reasonOf(asset) {
  if (asset.spam) return TEXTS.spam;
  return isKnown(asset.balance) ? TEXTS.noPrice : TEXTS.noDecimals;
}

function child(parent, kind, id, label, picture) {
  let node = parent.children.find((each) => each.id === id);
  if (!node) parent.children.push((node = { kind, id, label, picture, value: "0", children: [] }));
  return node;
}

// The leaves of one position, or of the loose assets of a type.
export function leaves(lists, owner) {
  return Object.entries(SIDES).flatMap(([key, side]) => (lists[key] ?? []).map((asset) => leaf(asset, side, owner)));
}

function addPositions(parent, positions, owner, outside) {
  const put = (id, label, lists, position) => {
    const all = leaves(lists, owner);
    outside.push(...all.filter((each) => each.asset.spam || !isKnown(each.value)));
    const kept = all.filter((each) => !each.asset.spam && isKnown(each.value));
    if (!kept.length) return;
    const loose = parent.id === "wallet" && !position; // its only position would repeat its name
    const node = loose ? parent : child(parent, "position", id, label);
    node.position ??= position;
    node.children.push(...kept);
    if (!loose) node.value = add(node.value, ...kept.map((each) => each.value));
  };
  for (const [key, group] of Object.entries(positions)) {
    put(key, group.name, { assets: group.assets }, null);
    group.protocolPositions.forEach((position, index) => {
      const id = `${key}:${owner}:${position.vaultAddress}:${position.poolAddress}:${index}`;
      put(id, `${group.name} · ${position.name}`, position, position);
    });
  }
}

// The tree with the values of the API at chains and protocols, exact sums over the addresses.
export function treeOf(documents) {
  const root = { kind: "root", label: "", children: [], value: add(...documents.map((each) => each.networth)) };
  const outside = [];
  for (const document of documents) {
    for (const [key, chain] of Object.entries(document.chains)) {
      const node = child(root, "chain", key, chain.name, chain.imgSmall);
      node.value = add(node.value, chain.value);
      (node.read ??= []).push({ ...chain, owner: document.address });
    }
    for (const protocol of Object.values(document.assetByProtocols)) {
      for (const [key, part] of Object.entries(protocol.chains)) {
        const chain = child(root, "chain", key, part.name, part.imgSmall);
        const node = child(chain, "protocol", protocol.key, protocol.name, protocol.imgSmall);
        node.value = add(node.value, part.value);
        addPositions(node, part.protocolPositions, document.address, outside);
      }
    }
  }
  return { root, outside: outside.map((each) => ({ ...each, reason: reasonOf(each.asset) })) };
}

const assetsBelow = (node) => (node.children ? node.children.flatMap(assetsBelow) : [node]);

// Values by chain, protocol or asset, as pairs of label and value.
export function allocation(root, by) {
  const sums = new Map();
  const put = (id, label, value) => sums.set(id, { label, value: add(sums.get(id)?.value ?? "0", value) });
  for (const chain of root.children) {
    if (by === "chain") put(chain.id, chain.label, chain.value);
    else if (by === "protocol") chain.children.forEach((each) => put(each.id, each.label, each.value));
    else assetsBelow(chain).forEach((each) => put(each.asset.chainContract, each.label, each.value));
  }
  return [...sums.values()];
}
