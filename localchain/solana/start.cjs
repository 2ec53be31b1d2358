// Starts Surfpool (LiteSVM behind Agave's RPC), prints one line of JSON with where it answers and who pays, and ends
// when its standard input does. One slot for each transaction.
const { Surfnet } = require("@solana/surfpool-linux-x64-gnu");

const net = Surfnet.startWithConfig({
  offline: true, // never look for accounts on a remote cluster
  airdropSol: 10_000 * 1e9, // lamports for the payer
  blockProductionMode: "transaction",
});
console.log(JSON.stringify({ rpc: net.rpcUrl, payer: net.payer, secret: Array.from(net.payerSecretKey) }));
const stop = () => { try { net.stop(); } finally { process.exit(0); } };
process.on("SIGTERM", stop);
process.stdin.on("end", stop);
process.stdin.resume();
setInterval(() => net.drainEvents(), 1000); // the event buffer grows if nobody drains it
