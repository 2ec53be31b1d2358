// Reads a list of jobs as JSON, does each with the SDK of the protocol's vendor, and prints what they gave as JSON.
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

const run = (jobs) => main(jobs).catch((error) => { console.error(error); process.exit(1); });

async function main(jobs) {
  const asked = JSON.parse(require("fs").readFileSync(0, "utf8"));
  const answers = [];
  for (const [name, fields] of asked) answers.push(told(await jobs[name](given(fields))));
  process.stdout.write(JSON.stringify(answers));
}

module.exports = { from, home, run };
