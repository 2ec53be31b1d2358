// Serves the state that build_wallets.mjs left: balances, nonces and calls at every block of the chain, from ganache.
//   node wallet_state.mjs --modules node_modules --data wallets/ [--port N]
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createRequire } from 'node:module';

const arg = (k, d) => {
  const i = process.argv.indexOf('--' + k);
  return i < 0 ? d : process.argv[i + 1];
};
const modules = path.resolve(arg('modules', 'node_modules'));
const ganache = createRequire(path.join(modules, 'x.js'))('ganache');
// A server writes into its folder: it works on a copy, so that the next one finds what was built.
const own = fs.mkdtempSync(path.join(os.tmpdir(), 'wallet-state-'));
fs.cpSync(path.join(path.resolve(arg('data', 'wallets')), 'state'), own, { recursive: true });
const server = ganache.server({
  logging: { quiet: true },
  chain: { hardfork: 'london', chainId: 31337 },
  database: { dbPath: own },
  miner: { blockGasLimit: 30000000 },
  wallet: {
    totalAccounts: 8,
    defaultBalance: 1000000,
    mnemonic: 'test test test test test test test test test test test junk',
  },
});
await server.listen(+arg('port', 0), '127.0.0.1');
console.log(JSON.stringify({ url: `http://127.0.0.1:${server.address().port}` }));
process.on('SIGTERM', async () => {
  await server.close();
  fs.rmSync(own, { recursive: true, force: true });
  process.exit(0);
});
