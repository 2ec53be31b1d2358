// Builds the deterministic benchmark chain on a fresh local anvil, and leaves anvil running for record.mjs.
//   node build_chain.mjs --modules node_modules --anvil PROGRAM [--out chain.json] [--blocks 2000] [--tokens 4]
//                       [--tx 10] [--transfers 10] [--approvals 1] [--noise 10] [--holders 4096] [--tail 64] [--port N]
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const arg = (k, d) => { const i = process.argv.indexOf('--' + k); return i < 0 ? d : process.argv[i + 1]; };
const N = +arg('blocks', 2000), TOK = +arg('tokens', 4), TX = +arg('tx', 10), T = +arg('transfers', 10);
const A = +arg('approvals', 1), NOISE = +arg('noise', 10), HOLD = +arg('holders', 4096), TAIL = +arg('tail', 64);
const PORT = +arg('port', 8599), outFile = arg('out', path.join(process.cwd(), 'chain.json'));
const modules = path.resolve(arg('modules', path.join(process.cwd(), 'node_modules')));
const url = `http://127.0.0.1:${PORT}`;

const solc = createRequire(path.join(modules, 'x.js'))('solc');
const optimizer = { enabled: true, runs: 1000 };
const outputSelection = { '*': { '*': ['evm.bytecode.object', 'evm.methodIdentifiers'] } };
const compiled = JSON.parse(solc.compile(JSON.stringify({
  language: 'Solidity', settings: { evmVersion: 'paris', optimizer, outputSelection },
  sources: { 'B.sol': { content: fs.readFileSync(path.join(here, 'BenchToken.sol'), 'utf8') } },
})));
if ((compiled.errors ?? []).some((e) => e.severity === 'error')) throw new Error(JSON.stringify(compiled.errors));
const { BenchToken, BenchNoise } = compiled.contracts['B.sol'];
const w = (x) => BigInt(x).toString(16).padStart(64, '0');
const hex = (x) => '0x' + x.toString(16);
const str = (s) => w(s.length) + Buffer.from(s).toString('hex').padEnd(64, '0');

const child = spawn(arg('anvil', path.join(modules, '.bin', 'anvil')), [
  '--port', `${PORT}`, '--no-mining', '--accounts', '2', '--balance', '1000000000', '--gas-limit', '1000000000',
  '--block-base-fee-per-gas', '0', '--gas-price', '0', '--timestamp', '1700000000', '--order', 'fifo',
  '--transaction-block-keeper', `${N + 100}`, '--silent',
], { stdio: ['ignore', 'ignore', 'inherit'], detached: true });
child.unref();
process.on('uncaughtException', (e) => {
  console.error(e);
  try { process.kill(child.pid); } catch { /* it has ended already */ }
  process.exit(1);
});

const headers = { 'content-type': 'application/json' };
const post = async (body) => (await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })).json();
const rpc = async (method, params = []) => {
  const r = await post({ jsonrpc: '2.0', id: 1, method, params });
  if (r.error) throw new Error(method + ' ' + JSON.stringify(r.error));
  return r.result;
};
for (let i = 0; ; i++) {
  try { await rpc('eth_chainId'); break; } catch (e) {
    if (i > 100) throw e;
    await new Promise((r) => setTimeout(r, 100));
  }
}
const [from] = await rpc('eth_accounts');
await rpc('anvil_setBlockTimestampInterval', [12]);
let nonce = 0;
const deploy = async (data) => {
  const h = await rpc('eth_sendTransaction', [{ from, data, gas: '0x1c9c380', nonce: hex(nonce++), gasPrice: '0x0' }]);
  await rpc('evm_mine');
  return (await rpc('eth_getTransactionReceipt', [h])).contractAddress;
};
const tokens = [];
for (let i = 0; i < TOK; i++) {
  const names = w(96) + w(160) + w(i % 2 ? 6 : 18) + str('Bench ' + i) + str('B' + i);
  tokens.push(await deploy('0x' + BenchToken.evm.bytecode.object + names));
}
const noise = await deploy('0x' + BenchNoise.evm.bytecode.object);
const firstBlock = +(await rpc('eth_blockNumber')) + 1;
const burst = '0x' + BenchToken.evm.methodIdentifiers['burst(uint256,uint256,uint256,uint256)'];
const noisy = '0x' + BenchNoise.evm.methodIdentifiers['burst(uint256,uint256)'];
for (let b = 0; b < N; b++) {
  const calls = [];
  for (let t = 0; t < TX; t++) {
    calls.push([tokens[(b + t) % TOK], burst + w(b * 1000 + t + 1) + w(T) + w(A) + w(HOLD)]);
  }
  if (NOISE) calls.push([noise, noisy + w(b + 1) + w(NOISE)]);
  const r = await post(calls.map(([to, data], id) => ({
    jsonrpc: '2.0', id, method: 'eth_sendTransaction',
    params: [{ from, to, data, gas: '0x2faf080', nonce: hex(nonce++), gasPrice: '0x0' }],
  })));
  const bad = r.find?.((x) => x.error);
  if (bad || !Array.isArray(r)) throw new Error('block ' + b + ' ' + JSON.stringify(bad ?? r));
  await rpc('evm_mine');
}
const lastBlock = +(await rpc('eth_blockNumber'));
await rpc('anvil_mine', [hex(TAIL)]); // empty blocks, so that whoever waits for finality still finishes
const out = {
  pid: child.pid, url, tokens, noise, firstBlock, lastBlock, head: lastBlock + TAIL,
  transfers: N * TX * T, approvals: N * TX * A, noiseLogs: N * NOISE, txs: N * (TX + (NOISE ? 1 : 0)),
};
fs.writeFileSync(outFile, JSON.stringify(out, null, 1) + '\n');
console.log(JSON.stringify(out));
