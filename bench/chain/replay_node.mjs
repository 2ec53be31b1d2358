// A JSON-RPC node which answers from files recorded by record.mjs: the same bytes as the real node, served fast enough
// that an indexer, not the node, is what a benchmark measures; and, with flags, the faults of rented endpoints.
//   node replay_node.mjs --data recorded/ [--port 8600]
//     --times N           the chain's filled span N times over, as one longer chain with its own hashes and times
//     --latency MS        each HTTP answer is delayed by MS
//     --max-range N       eth_getLogs over more than N blocks -> -32602 "eth_getLogs is limited to a N blocks range"
//     --max-logs N        eth_getLogs with more than N results -> -32005 "query returned more than N results"
//     --rps N             more than N HTTP requests in a second -> 429 with retry-after
//     --fail P            share P (0..1) of answers is HTTP 502 (deterministic sequence)
//     --drop P            share P of eth_getLogs answers silently misses its last block's logs (a lagging backend)
//     --state URL         balances, nonces, code and calls at any block are another node's to answer (wallet_state.mjs)
//     --payer ADDRESS     the contract whose calls `pay(address[],uint256)` move coins inside: what traces would say
//     --serve A,B         of `trace`, `ots`: which of these families of methods there are; else none. An explorer is
//                         always there, at GET /api
//     --head N            reported head (default: last recorded); --lag N: finalized = head - N (default 0)
// GET /stats gives counters per method (`calls`, and `requests` that have it), bytes, and the spans that were asked
// for; GET /reset clears them.
import http from 'node:http';
import fs from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';
import { inside } from './inside.mjs';

const arg = (k, d) => { const i = process.argv.indexOf('--' + k); return i < 0 ? d : process.argv[i + 1]; };
const dir = arg('data', 'recorded'), PORT = +arg('port', 8600), TIMES = +arg('times', 1), LAT = +arg('latency', 0);
const MAXR = +arg('max-range', 0), MAXL = +arg('max-logs', 0), RPS = +arg('rps', 0);
const STATE = arg('state', ''), PAYER = arg('payer', ''), SERVE = new Set(arg('serve', '').split(','));
const FAIL = +arg('fail', 0), DROP = +arg('drop', 0), LAG = +arg('lag', 0);
const meta = JSON.parse(fs.readFileSync(path.join(dir, 'chain.json'), 'utf8'));
const lines = async function* (file) {
  const input = fs.createReadStream(path.join(dir, file));
  for await (const line of readline.createInterface({ input, crlfDelay: Infinity })) if (line) yield line;
};
const full = [], light = [], hashes = [], logs = [], receipts = [], txAt = new Map();
for await (const line of lines('blocks.jsonl')) {
  const b = JSON.parse(line), n = full.length;
  hashes.push(b.hash); full.push(line);
  b.transactions.forEach((t, i) => txAt.set(t.hash, [n, i]));
  light.push(JSON.stringify({ ...b, transactions: b.transactions.map((t) => t.hash) }));
}
for await (const line of lines('logs.jsonl')) {
  logs.push(JSON.parse(line).map((x) => ({ a: x.address.toLowerCase(), t: x.topics, s: JSON.stringify(x) })));
}
for await (const line of lines('receipts.jsonl')) receipts.push(line);

// The longer chain: block n stands for the recorded block source(n), moved by round(n) spans.
const FIRST = meta.firstBlock, SPAN = meta.lastBlock - FIRST + 1, END = FIRST + TIMES * SPAN, STEP_S = 12;
const round = (n) => (n < FIRST ? 0 : n < END ? Math.floor((n - FIRST) / SPAN) : TIMES - 1);
const source = (n) => n - round(n) * SPAN;
const hex = (n) => '0x' + n.toString(16);
const hashOf = (n) => {
  const hash = hashes[source(n)];
  return round(n) === 0 ? hash : '0x' + n.toString(16).padStart(16, '0') + hash.slice(18);
};
const later = (n, seconds) => hex(Number(seconds) + round(n) * SPAN * STEP_S);
function moved(n, text) {
  if (round(n) === 0) return text;
  const b = JSON.parse(text);
  const own = { number: hex(n), hash: hashOf(n), parentHash: hashOf(n - 1), timestamp: later(n, b.timestamp) };
  return JSON.stringify({ ...b, ...own });
}
const block = (n, whole) => { const text = (whole ? full : light)[source(n)]; return text ? moved(n, text) : 'null'; };
const movedLogs = (n, buffer) => {
  if (round(n) === 0) return buffer;
  const text = buffer.toString('latin1'), at = JSON.parse(light[source(n)]);
  return Buffer.from(text.replaceAll(at.hash, hashOf(n))
    .replaceAll(`"blockNumber":"${at.number}"`, `"blockNumber":"${hex(n)}"`)
    .replaceAll(`"blockTimestamp":"${at.timestamp}"`, `"blockTimestamp":"${later(n, at.timestamp)}"`), 'latin1');
};
const length = full.length + (TIMES - 1) * SPAN;
const byHash = new Map(Array.from({ length }, (_, n) => [hashOf(n), n]));
let head = +arg('head', length - 1);

// One cached Buffer per (filter, block): an answer is a list of slices, nothing is re-serialised.
const filters = new Map();
function select(f) {
  const key = JSON.stringify([f.address, f.topics]).toLowerCase();
  let c = filters.get(key);
  if (c) return c;
  const addr = f.address == null ? null : new Set([].concat(f.address).map((x) => x.toLowerCase()));
  const top = (f.topics ?? []).map((t) => (t == null ? null : new Set([].concat(t).map((x) => x?.toLowerCase()))));
  c = { cnt: new Uint32Array(logs.length), buf: new Array(logs.length) };
  logs.forEach((ls, n) => {
    const fits = (x) => (!addr || addr.size === 0 || addr.has(x.a))
      && top.every((s, i) => !s || s.size === 0 || (x.t[i] && s.has(x.t[i])));
    const m = ls.filter(fits);
    c.cnt[n] = m.length;
    c.buf[n] = m.length ? Buffer.from(m.map((x) => x.s).join(',')) : null;
  });
  filters.set(key, c);
  return c;
}
const COMMA = Buffer.from(',');
function tag(t) {
  if (t === 'latest' || t === 'pending' || t === undefined) return head;
  return t === 'earliest' ? 0 : t === 'finalized' || t === 'safe' ? Math.max(0, head - LAG) : Number(t);
}
const err = (code, message) => ({ error: JSON.stringify({ code, message }) });
const fresh = () => ({ http: 0, rejected: 0, failed: 0, bytes: 0, calls: {}, requests: {}, asked: [] });
const live = new Map();
let seq = 0, fid = 0, stats = fresh(), win = 0, inWindow = 0;
const lucky = (p) => p > 0 && ((++seq * 2654435761) >>> 0) / 4294967296 < p;

function getLogs(f) {
  let a, b;
  if (f.blockHash) {
    a = b = byHash.get(f.blockHash);
    if (a === undefined) return err(-32000, 'unknown block');
  } else { a = tag(f.fromBlock); b = tag(f.toBlock); }
  stats.asked.push([a, b, [].concat(f.address ?? [])]);
  if (MAXR && b - a + 1 > MAXR) return err(-32602, `eth_getLogs is limited to a ${MAXR} blocks range`);
  b = Math.min(b, head);
  const c = select(f);
  let n = 0;
  for (let i = a; i <= b; i++) n += c.cnt[source(i)] ?? 0;
  if (MAXL && n > MAXL) return err(-32005, `query returned more than ${MAXL} results`);
  if (lucky(DROP) && b > a) b--;
  const parts = ['['];
  let first = true;
  for (let i = a; i <= b; i++) {
    const buffer = c.buf[source(i)];
    if (!buffer) continue;
    if (!first) parts.push(COMMA);
    first = false;
    parts.push(movedLogs(i, buffer));
  }
  parts.push(']');
  return parts;
}
function receiptsOf(n) {
  const ls = logs[n].map((x) => JSON.parse(x.s));
  const own = (hash) => ls.filter((x) => x.transactionHash === hash);
  return JSON.parse(receipts[n]).map((r) => ({ ...r, logs: own(r.transactionHash) }));
}
function call(m, p = []) {
  stats.calls[m] = (stats.calls[m] ?? 0) + 1;
  switch (m) {
    case 'eth_chainId': return `"${hex(meta.chainId)}"`;
    case 'net_version': return `"${meta.chainId}"`;
    case 'web3_clientVersion': return '"replay/1"';
    case 'eth_syncing': return 'false';
    case 'net_listening': return 'true';
    case 'eth_blockNumber': return `"${hex(head)}"`;
    case 'eth_getBlockByNumber': { const n = tag(p[0]); return n <= head ? block(n, p[1]) : 'null'; }
    case 'eth_getBlockByHash': return (byHash.get(p[0]) ?? Infinity) <= head ? block(byHash.get(p[0]), p[1]) : 'null';
    case 'eth_getTransactionReceipt': {
      const at = txAt.get(p[0]);
      return at ? JSON.stringify(receiptsOf(at[0])[at[1]]) : 'null';
    }
    case 'eth_getTransactionByBlockHashAndIndex': {
      const n = byHash.get(p[0]) ?? Infinity;
      return n <= head ? JSON.stringify(JSON.parse(block(n, true)).transactions[Number(p[1])] ?? null) : 'null';
    }
    case 'eth_getBlockReceipts': {
      const n = byHash.get(p[0]) ?? tag(p[0]);
      return n > head || !receipts[n] ? 'null' : JSON.stringify(receiptsOf(n));
    }
    case 'eth_newFilter': { const k = hex(++fid); live.set(k, p[0] ?? {}); return `"${k}"`; }
    case 'eth_uninstallFilter': return live.delete(p[0]) ? 'true' : 'false';
    case 'eth_getFilterLogs':
    case 'eth_getFilterChanges': return getLogs(live.get(p[0]) ?? {});
    case 'eth_getLogs': return getLogs(p[0] ?? {});
    default: return served[m] ? JSON.stringify(served[m](p, txAt)) : err(-32601, 'method not found: ' + m);
  }
}
const within = inside({ full, receipts, receiptsOf, txAt, payer: PAYER });
const served = { ...(SERVE.has('trace') ? within.trace : {}), ...(SERVE.has('ots') ? within.ots : {}) };
const OF_STATE = new Set([
  'eth_getBalance', 'eth_getTransactionCount', 'eth_getCode', 'eth_getStorageAt', 'eth_call',
]);
const heightOf = (at) => (at?.blockHash ? byHash.get(at.blockHash) : at?.blockNumber ?? at);
// What the other node says, by position in the batch: one exchange for all.
async function ofState(questions) {
  const mine = STATE ? questions.map((q, i) => [q, i]).filter(([q]) => OF_STATE.has(q.method)) : [];
  const said = new Map();
  if (mine.length === 0) return said;
  const body = mine.map(([q, id]) => {
    const params = [...(q.params ?? [])], place = q.method === 'eth_getStorageAt' ? 2 : 1, n = heightOf(params[place]);
    if (typeof n === 'number') params[place] = hex(n);
    else if (n === undefined && params[place]?.blockHash) return null;
    stats.calls[q.method] = (stats.calls[q.method] ?? 0) + 1;
    return { jsonrpc: '2.0', id, method: q.method, params };
  });
  const asked = body.filter((x) => x !== null);
  const answers = asked.length === 0 ? [] : await (await fetch(STATE, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(asked),
  })).json();
  for (const r of answers) said.set(r.id, r.error ? err(-32000, r.error.message) : JSON.stringify(r.result));
  mine.forEach(([, id]) => { if (!said.has(id)) said.set(id, err(-32000, 'unknown block')); });
  return said;
}
const answer = (q, known) => {
  const r = known ?? call(q.method, q.params), id = JSON.stringify(q.id ?? null);
  if (r && r.error && !Array.isArray(r)) return [`{"jsonrpc":"2.0","id":${id},"error":${r.error}}`];
  return [`{"jsonrpc":"2.0","id":${id},"result":`, ...(Array.isArray(r) ? r : [r]), '}'];
};
const JSON_TYPE = { 'content-type': 'application/json' };
function about(req, res) {
  const u = new URL(req.url, 'http://x');
  if (u.pathname === '/reset') stats = fresh();
  if (u.pathname === '/head') head = +u.searchParams.get('n');
  if (u.pathname === '/api') stats.explorer = (stats.explorer ?? 0) + 1;
  const said = JSON.stringify(u.pathname === '/api' ? within.explorer(u.searchParams, head) : { ...stats, head });
  if (u.pathname === '/api') stats.bytes += said.length;
  res.writeHead(200, JSON_TYPE);
  res.end(said);
}
async function reply(res, body) {
  if (RPS && ++inWindow > RPS) {
    stats.rejected++;
    res.writeHead(429, { ...JSON_TYPE, 'retry-after': '1' });
    return res.end('{"jsonrpc":"2.0","id":null,"error":{"code":429,"message":"too many requests"}}');
  }
  if (lucky(FAIL)) { stats.failed++; res.writeHead(502); return res.end('bad gateway'); }
  let q;
  try { q = JSON.parse(body); } catch { res.writeHead(400); return res.end(); }
  for (const m of new Set([].concat(q).map((x) => x.method))) stats.requests[m] = (stats.requests[m] ?? 0) + 1;
  const known = await ofState([].concat(q));
  const one = (x, i) => [...(i ? [','] : []), ...answer(x, known.get(i))];
  const many = (qs) => ['[', ...qs.flatMap(one), ']'];
  const list = Array.isArray(q) ? many(q) : answer(q, known.get(0));
  const buffers = list.map((x) => (typeof x === 'string' ? Buffer.from(x) : x));
  const size = buffers.reduce((sum, x) => sum + x.length, 0);
  stats.bytes += size;
  if (!res.socket) return undefined;
  res.writeHead(200, { ...JSON_TYPE, 'content-length': size });
  res.cork(); for (const x of buffers) res.write(x); res.uncork();
  return res.end();
}
http.createServer((req, res) => {
  if (req.method === 'GET') return about(req, res);
  const chunks = [];
  req.on('data', (c) => chunks.push(c));
  return req.on('end', () => {
    stats.http++;
    const now = Math.floor(Date.now() / 1000);
    if (now !== win) { win = now; inWindow = 0; }
    const go = () => reply(res, Buffer.concat(chunks));
    if (LAT) setTimeout(go, LAT); else go();
  });
}).listen(PORT, '127.0.0.1', function () {
  const { port } = this.address();
  console.log(JSON.stringify({ pid: process.pid, url: `http://127.0.0.1:${port}`, blocks: length, head }));
});
