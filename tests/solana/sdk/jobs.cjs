// Reads lines, each a list of jobs as JSON; does each job with the SDK of the protocol's vendor, and prints a line that
// begins with ANSWERS, with what they gave as JSON, or with FAILED. The SDKs, which load for seconds, stay loaded.
// Whole numbers are texts that end in n, in both directions; bytes are {"hex": "…"}. The first argument is where the
// SDKs are.
const path = require("path");
const home = process.argv[2];
const from = (name) => require(path.join(home, "node_modules", name));
const BN = from("bn.js");

const given = (value) => {
  if (typeof value === "string") return /^-?[0-9]+n$/.test(value) ? BigInt(value.slice(0, -1)) : value;
  if (Array.isArray(value)) return value.map(given);
  if (value && typeof value === "object")
    return "hex" in value ? new Uint8Array(Buffer.from(value.hex, "hex"))
      : Object.fromEntries(Object.entries(value).map(([key, each]) => [key, given(each)]));
  return value;
};
const told = (value) => {
  if (typeof value === "bigint") return `${value}n`;
  if (BN.isBN(value)) return `${value}n`;
  if (value instanceof Uint8Array) return { hex: Buffer.from(value).toString("hex") };
  if (value && typeof value.toBase58 === "function") return value.toBase58(); // a key
  if (Array.isArray(value)) return value.map(told);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, told(each)]));
  return value;
};

async function answer(jobs, line) {
  const answers = [];
  for (const [name, fields] of JSON.parse(line)) answers.push(told(await jobs[name](given(fields))));
  return `ANSWERS ${JSON.stringify(answers)}`;
}

async function run(jobs) {
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    const reply = await answer(jobs, line).catch((error) => `FAILED ${JSON.stringify(String(error?.stack ?? error))}`);
    process.stdout.write(`\n${reply}\n`);
  }
  process.exit(0);
}

module.exports = { from, home, run };
