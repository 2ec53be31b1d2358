// Jobs of MarginFi's SDK.
const { from, run } = require("../jobs.cjs");
const { BorshAccountsCoder } = from("@coral-xyz/anchor");
const { PublicKey } = from("@solana/web3.js");
const BN = from("bn.js"), BigNumber = from("bignumber.js");
const marginfi = from("@mrgnlabs/marginfi-client-v2");

const { convertIdlToCamelCase } = from("@coral-xyz/anchor/dist/cjs/idl.js");
const named = convertIdlToCamelCase(marginfi.MARGINFI_IDL); // as the SDK's own functions want it
const coder = new BorshAccountsCoder(marginfi.MARGINFI_IDL);
const YEAR = 365 * 86_400; // seconds, as the program has it

const jobs = {
  // An account by its interface, of which only some fields are said: the others are zero.
  marginfi: async ({ account, size, fields }) => {
    const { discriminator } = marginfi.MARGINFI_IDL.accounts.find((each) => each.name === account);
    const blank = Buffer.concat([Buffer.from(discriminator), Buffer.alloc(size - 8)]);
    const into = (base, each) => {
      if (Array.isArray(each)) return base.map((one, at) => (at < each.length ? into(one, each[at]) : one));
      if (BN.isBN(base)) return new BN(each.toString());
      if (base instanceof PublicKey) return new PublicKey(each);
      if (each instanceof Uint8Array) return [...each];
      if (each === null || typeof each !== "object") return each;
      for (const key of Object.keys(each)) if (!(key in base)) throw new Error(`there is no field ${key}`);
      return { ...base, ...Object.fromEntries(Object.keys(each).map((key) => [key, into(base[key], each[key])])) };
    };
    const whole = into(coder.decode(account, blank), fields);
    const written = await new BorshAccountsCoder(marginfi.MARGINFI_IDL).encode(account, whole).catch(() => null);
    if (written) return new Uint8Array(Buffer.concat([written, Buffer.alloc(size - written.length)]));
    const bytes = Buffer.alloc(size); // the coder has room for a thousand bytes
    const end = coder.accountLayouts.get(account).encode(whole, bytes, 8);
    bytes.set(Buffer.from(discriminator));
    return new Uint8Array(bytes);
  },
  marginfi_worth: async ({ account, banks, time }) => {
    BigNumber.config({ DECIMAL_PLACES: 60 });
    const known = new Map(banks.map(([at, content]) => {
      const read = marginfi.decodeBankRaw(Buffer.from(content), named);
      const bank = marginfi.parseBankRaw(new PublicKey(at), read);
      const { lendingRate, borrowingRate } = marginfi.computeInterestRates(bank);
      const passed = (rate) => new BigNumber(1).plus(rate.times(time - bank.lastUpdate).div(YEAR));
      const idle = bank.totalLiabilityShares.isZero() || bank.totalAssetShares.isZero();
      if (!idle) {
        bank.assetShareValue = bank.assetShareValue.times(passed(lendingRate));
        bank.liabilityShareValue = bank.liabilityShareValue.times(passed(borrowingRate));
      }
      return [at, bank];
    }));
    const raw = marginfi.decodeAccountRaw(Buffer.from(account), named);
    const { balances } = marginfi.parseMarginfiAccountRaw(PublicKey.unique(), raw);
    const found = balances.filter((each) => each.active).map((each) => {
      const at = each.bankPk.toBase58(), { assets, liabilities } = marginfi.computeQuantity(each, known.get(at));
      const whole = (each, mode) => BigInt(each.toFixed(0, mode));
      return [at, whole(assets, BigNumber.ROUND_FLOOR), whole(liabilities, BigNumber.ROUND_CEIL)];
    });
    const side = (place) =>
      Object.fromEntries(found.filter((each) => each[place]).map((each) => [each[0], each[place]]));
    return [side(1), side(2)];
  },
};

run(jobs);
