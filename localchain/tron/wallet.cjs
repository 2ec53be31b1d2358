// Tron's official client, driven line by line: each line of standard input is a request in JSON, each line of standard
// output its answer. It builds and signs without a node; `client` asks a node as any application would.
const { TronWeb } = require("tronweb");
const readline = require("node:readline");

const NOWHERE = "http://127.0.0.1:1"; // whatever is built here is built without asking anybody

// Most builders take their options last; some take them first, or among the others.
async function unsigned(builder, method, args, header) {
  if (method === "createSmartContract" || method === "createToken") return builder[method]({ ...args[0], ...header });
  if (method !== "triggerSmartContract") return builder[method](...args, header);
  return (await builder[method](args[0], args[1], { ...header, txLocal: true }, args[2])).transaction;
}

async function build({ key, method, args, options, reference, memo, permission, more }) {
  const web = new TronWeb({ fullHost: NOWHERE, privateKey: key });
  const header = { blockHeader: reference, ...(permission ? { permissionId: permission } : {}), ...options };
  const made = await unsigned(web.transactionBuilder, method, args, header);
  const whole = memo ? await web.transactionBuilder.addUpdateData(made, memo, "utf8", { txLocal: true }) : made;
  if (!permission && !more) return web.trx.sign(whole);
  let signed = whole;
  for (const each of [key, ...(more ?? [])]) signed = await web.trx.multiSign(signed, each, permission);
  return signed;
}

async function client({ url, key, path, args }) {
  const web = new TronWeb({ fullHost: url, ...(key ? { privateKey: key } : {}) });
  const [part, method] = path;
  return web[part][method](...args);
}

const DOES = {
  address: ({ key }) => ({ hex: TronWeb.address.toHex(TronWeb.address.fromPrivateKey(key)).toLowerCase() }),
  build,
  client,
};

readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  const request = JSON.parse(line);
  let answer;
  try {
    answer = { result: await DOES[request.do](request) };
  } catch (error) {
    answer = { error: String(error?.message ?? error) };
  }
  console.log(JSON.stringify(answer, (_, value) => (typeof value === "bigint" ? value.toString() : value)));
});
