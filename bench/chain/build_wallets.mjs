// Builds a long chain around five wallets on ganache, which keeps the state of every block, and records it for
// replay_node.mjs. The chain's state stays in the folder `state`: wallet_state.mjs serves it.
//   node build_wallets.mjs --modules node_modules --out wallets/ [--blocks 200000] [--logs 1000000] [--scale 1]
// `chain.json` has what was planted: the wallets, their own events, the differences with their first blocks.
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const arg = (k, d) => {
  const i = process.argv.indexOf('--' + k);
  return i < 0 ? d : process.argv[i + 1];
};
const BLOCKS = +arg('blocks', 200000),
  LOGS = +arg('logs', 1000000),
  SCALE = +arg('scale', 1),
  BURST = 50;
const modules = path.resolve(arg('modules', 'node_modules')),
  dir = path.resolve(arg('out', 'wallets'));
const require = createRequire(path.join(modules, 'x.js'));
const ganache = require('ganache'),
  solc = require('solc');

const optimizer = { enabled: true, runs: 1000 };
const outputSelection = { '*': { '*': ['evm.bytecode.object', 'evm.methodIdentifiers'] } };
const source = (name) => ({ content: fs.readFileSync(path.join(here, name), 'utf8') });
const compiled = JSON.parse(
  solc.compile(
    JSON.stringify({
      language: 'Solidity',
      settings: { evmVersion: 'paris', optimizer, outputSelection },
      sources: { 'W.sol': source('WalletCast.sol') },
    }),
  ),
);
if ((compiled.errors ?? []).some((e) => e.severity === 'error')) throw new Error(JSON.stringify(compiled.errors));
const code = Object.assign({}, ...Object.values(compiled.contracts));

const w = (x) => BigInt(x).toString(16).padStart(64, '0');
const hex = (x) => '0x' + x.toString(16);
const str = (s) => w(s.length) + Buffer.from(s).toString('hex').padEnd(64, '0');
const list = (xs) => w(xs.length) + xs.map(w).join('');
const call = (contract, name, ...words) => {
  const known = Object.entries(code[contract].evm.methodIdentifiers).find(([k]) => k.startsWith(name + '('));
  return '0x' + known[1] + words.join('');
};

fs.rmSync(dir, { recursive: true, force: true });
fs.mkdirSync(path.join(dir, 'state'), { recursive: true });
const START_S = 1700000000;
const provider = ganache.provider({
  logging: { quiet: true },
  chain: { hardfork: 'london', chainId: 31337, time: new Date(START_S * 1000) },
  database: { dbPath: path.join(dir, 'state') },
  miner: { blockGasLimit: 30000000, timestampIncrement: 12, defaultGasPrice: hex(2000000000), instamine: 'strict' },
  wallet: {
    totalAccounts: 8,
    defaultBalance: 1000000,
    mnemonic: 'test test test test test test test test test test test junk',
  },
});
const rpc = (method, params = []) => provider.request({ method, params });
const [deployer, crowd, patron, ...rest] = (await rpc('eth_accounts')).map((a) => a.toLowerCase());
const wallets = rest.slice(0, 5);

// Deterministic chance: the same chain every time.
let seed = 42n;
const chance = () => {
  seed = (seed * 6364136223846793005n + 1442695040888963407n) & ((1n << 64n) - 1n);
  return Number(seed >> 33n);
};
const below = (n) => chance() % n;

await rpc('miner_stop');
const pending = [];
const send = async (from, to, data, value = 0n, gas = 25000000) => {
  const tx = { from, data, value: hex(value), gas: hex(gas), gasPrice: hex(2000000000) };
  if (to) tx.to = to;
  const hash = await rpc('eth_sendTransaction', [tx]);
  pending.push(hash);
  return hash;
};
let height = 0;
const mine = async (count = 1) => {
  await rpc('evm_mine', [{ blocks: count }]);
  height += count;
  pending.length = 0;
};
const deploy = async (contract, args = '') => {
  const hash = await send(deployer, null, '0x' + code[contract].evm.bytecode.object + args);
  await mine();
  return (await rpc('eth_getTransactionReceipt', [hash])).contractAddress.toLowerCase();
};

const noise = await deploy('Crowd');
const payer = await deploy('Payer'),
  rebasing = await deploy('RebasingToken'),
  fee = await deploy('FeeToken');
const silent = await deploy('SilentToken'),
  collection = await deploy('Collection');
const plain = [];
for (let i = 0; i < 6; i++) plain.push(await deploy('PlainToken', w(32) + str('Plain ' + i)));
const spam = [];
for (let i = 0; i < 300; i++) spam.push(await deploy('PlainToken', w(32) + str('visit s' + i + '.example')));
const first = height + 1;

// What happens at which height: the wallets' own events over all of the chain, the crowd's bursts between them.
const events = wallets.map((_, i) => Math.max(10, Math.round([50, 200, 800, 2000, 5000][i] * SCALE)));
const last = first + BLOCKS - 1,
  at = new Map(),
  planted = [];
const plan = (h, step) => {
  if (!at.has(h)) at.set(h, []);
  at.get(h).push(step);
};
const spread = (count, step) => {
  for (let i = 0; i < count; i++)
    plan(
      first + 20 + Math.floor((i * (BLOCKS - 200)) / count) + below(Math.max(1, Math.floor((BLOCKS - 200) / count))),
      step,
    );
};
for (const wallet of wallets)
  for (const token of plain)
    plan(first, () => send(crowd, token, call('PlainToken', 'mint', w(wallet), w(10n ** 24n))));
const nfts = new Map(wallets.map((x) => [x, []]));
let id = 0;
const other = () => w((BigInt(0x1000 + below(4096)) << 32n) + 7n);
wallets.forEach((wallet, i) => {
  const count = events[i],
    share = (part) => Math.max(1, Math.round(count * part));
  spread(share(0.28), () =>
    send(wallet, plain[below(6)], call('PlainToken', 'transfer', other(), w(1000 + below(10 ** 9))), 0n, 100000),
  );
  spread(share(0.3), () =>
    send(crowd, plain[below(6)], call('PlainToken', 'mint', w(wallet), w(1000 + below(10 ** 9))), 0n, 100000),
  );
  spread(share(0.06), () =>
    send(wallet, plain[below(6)], call('PlainToken', 'approve', other(), w(below(10 ** 9))), 0n, 100000),
  );
  spread(share(0.06), () => send(wallet, '0x' + other().slice(24), '0x', BigInt(1 + below(10 ** 9)), 21000));
  spread(share(0.06), () => send(patron, wallet, '0x', BigInt(1 + below(10 ** 9)), 21000));
  spread(share(0.08), () => {
    const each = BigInt(1 + below(10 ** 9));
    return send(
      patron,
      payer,
      call('Payer', 'pay', w(64), w(each), list([wallet, '0x' + other().slice(24)])),
      2n * each,
      200000,
    );
  });
  spread(share(0.04), () => send(wallet, payer, call('Payer', 'fail'), 5n, 100000));
  spread(share(0.04), () => {
    nfts.get(wallet).push(++id);
    return send(crowd, collection, call('Collection', 'mint', w(wallet), w(id)), 0n, 150000);
  });
  spread(share(0.03), () => {
    const own = nfts.get(wallet).shift();
    return own === undefined
      ? undefined
      : send(wallet, collection, call('Collection', 'transferFrom', w(wallet), other(), w(own)), 0n, 150000);
  });
  spread(share(0.05), () =>
    send(
      wallet,
      plain[below(6)],
      call('PlainToken', 'transfer', w(wallets[(i + 1 + below(4)) % 5]), w(1 + below(10 ** 6))),
      0n,
      100000,
    ),
  );
});
// Differences that a sum of events must show: each with the first block where it appears.
const differ = (kind, wallet, token, h) => planted.push({ kind, wallet, token, height: h });
const part = (share) => first + Math.floor(BLOCKS * share);
plan(part(0.1), () => send(crowd, rebasing, call('RebasingToken', 'mint', w(wallets[2]), w(10n ** 21n))));
plan(part(0.35), () => {
  differ('rebasing', wallets[2], rebasing, part(0.35));
  return send(crowd, rebasing, call('RebasingToken', 'rebase', w(7)));
});
plan(part(0.7), () => {
  differ('rebasing', wallets[2], rebasing, part(0.7));
  return send(crowd, rebasing, call('RebasingToken', 'rebase', w(3)));
});
plan(part(0.2), () => send(crowd, fee, call('FeeToken', 'mint', w(wallets[3]), w(10n ** 20n))));
plan(part(0.45), () => {
  differ('fee on transfer', wallets[1], fee, part(0.45));
  return send(wallets[3], fee, call('FeeToken', 'transfer', w(wallets[1]), w(10n ** 18n)));
});
plan(part(0.25), () => send(crowd, silent, call('SilentToken', 'mint', w(wallets[4]), w(10n ** 20n))));
plan(part(0.55), () => {
  differ('without events', wallets[4], silent, part(0.55));
  return send(crowd, silent, call('SilentToken', 'take', w(wallets[4]), w(10n ** 19n)));
});
spam.forEach((token, i) =>
  plan(part(0.6) + i, () => send(crowd, token, call('PlainToken', 'airdrop', w(64), w(10n ** 18n), list(wallets)))),
);

const bursts = Math.ceil(LOGS / BURST),
  step = (BLOCKS - 100) / bursts;
for (let i = 0; i < bursts; i++)
  plan(first + 10 + Math.floor(i * step), () => send(crowd, noise, call('Crowd', 'burst', w(i + 1), w(BURST))));

const steps = [...at.keys()].sort((a, b) => a - b);
const began = Date.now();
for (const [n, h] of steps.entries()) {
  if (h > height + 1) await mine(h - height - 1);
  for (const one of at.get(h)) await one();
  await mine();
  if (n % 5000 === 0) console.error(`${h - first} of ${BLOCKS} blocks, ${Math.round((Date.now() - began) / 1000)} s`);
}
if (height < last) await mine(last - height);
const TAIL = 70;
await mine(TAIL); // so that whoever waits for finality still finishes

// Everything as plain lines, and what moved inside the calls of Payer: the only ones that move coins inside.
const file = (name) => fs.createWriteStream(path.join(dir, name + '.jsonl'));
const out = { blocks: file('blocks'), logs: file('logs'), receipts: file('receipts') };
const put = async (s, o) => {
  if (!s.write(JSON.stringify(o) + '\n')) await new Promise((r) => s.once('drain', r));
};
let found = 0,
  txs = 0;
for (let h = 0; h <= height; h++) {
  const block = await rpc('eth_getBlockByNumber', [hex(h), true]);
  const receipts = [];
  for (const tx of block.transactions) receipts.push(await rpc('eth_getTransactionReceipt', [tx.hash]));
  // Ganache counts the logs of each transaction from 0; nodes count those of the block.
  const logs = receipts.flatMap((r) => r.logs).map((log, index) => ({ ...log, logIndex: hex(index) }));
  found += logs.length;
  txs += receipts.length;
  await put(out.blocks, block);
  await put(out.logs, logs);
  await put(
    out.receipts,
    receipts.map(({ logs: _, ...r }) => r),
  );
}
for (const s of Object.values(out)) await new Promise((r) => s.end(r));
const about = {
  chainId: 31337,
  firstBlock: first,
  lastBlock: last,
  head: height,
  wallets,
  planted,
  payer,
  spam,
  plain,
  rebasing,
  fee,
  silent,
  collection,
  noise,
  tokens: [noise, ...plain],
  events,
  logs: found,
  txs,
  transfers: 0,
  approvals: 0,
};
fs.writeFileSync(path.join(dir, 'chain.json'), JSON.stringify(about, null, 1) + '\n');
console.log(JSON.stringify({ dir, blocks: height + 1, logs: found, txs }));
await provider.disconnect();
process.exit(0);
