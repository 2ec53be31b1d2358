// Records a chain built by build_chain.mjs into plain JSONL files which replay_node.mjs serves.
//   node record.mjs --chain chain.json --out recorded/
import fs from 'node:fs';
import path from 'node:path';

const arg = (k, d) => { const i = process.argv.indexOf('--' + k); return i < 0 ? d : process.argv[i + 1]; };
const chain = JSON.parse(fs.readFileSync(arg('chain', 'chain.json'), 'utf8'));
const dir = arg('out', 'recorded'), headers = { 'content-type': 'application/json' };
fs.mkdirSync(dir, { recursive: true });
const batch = async (calls) => {
  const body = JSON.stringify(calls.map(([method, params], id) => ({ jsonrpc: '2.0', id, method, params })));
  const r = await (await fetch(chain.url, { method: 'POST', headers, body })).json();
  for (const x of r) if (x.error) throw new Error(JSON.stringify(x.error));
  return r.sort((a, b) => a.id - b.id).map((x) => x.result);
};
const hex = (n) => '0x' + n.toString(16);
const file = (name) => fs.createWriteStream(path.join(dir, name + '.jsonl'));
const blocks = file('blocks'), logs = file('logs'), receipts = file('receipts');
const put = async (s, o) => { if (!s.write(JSON.stringify(o) + '\n')) await new Promise((r) => s.once('drain', r)); };
let count = 0;
for (let first = 0; first <= chain.head; first += 20) {
  const heights = Array.from({ length: Math.min(20, chain.head + 1 - first) }, (_, i) => hex(first + i));
  for (const x of await batch(heights.map((n) => ['eth_getBlockByNumber', [n, true]]))) await put(blocks, x);
  for (const rs of await batch(heights.map((n) => ['eth_getBlockReceipts', [n]]))) {
    const found = rs.flatMap((r) => r.logs);
    count += found.length;
    await put(logs, found);
    await put(receipts, rs.map(({ logs: _, ...r }) => r));
  }
}
for (const s of [blocks, logs, receipts]) await new Promise((r) => s.end(r));
const about = { ...chain, logs: count, chainId: 31337 };
fs.writeFileSync(path.join(dir, 'chain.json'), JSON.stringify(about, null, 1) + '\n');
console.log(JSON.stringify({ dir, blocks: chain.head + 1, logs: count }));
