// Jobs of Kamino's SDK.
const { from, run } = require("../jobs.cjs");
const BN = from("bn.js"), Decimal = from("decimal.js"), klend = from("@kamino-finance/klend-sdk");

// An account of which only some fields are said; the others are zero.
const filled = (layout, fields) => {
  const into = (base, each) => {
    if (Array.isArray(each)) return base.map((one, at) => (at < each.length ? into(one, each[at]) : one));
    if (typeof each === "bigint") return new BN(each.toString());
    if (each === null || typeof each !== "object" || each instanceof Uint8Array) return each;
    for (const key of Object.keys(each)) if (!(key in base)) throw new Error(`there is no field ${key}`);
    return { ...base, ...Object.fromEntries(Object.keys(each).map((key) => [key, into(base[key], each[key])])) };
  };
  const bytes = Buffer.alloc(layout.span);
  layout.encode(into(layout.decode(Buffer.alloc(layout.span)), fields), bytes);
  return bytes;
};

const jobs = {
  kamino: async ({ account, fields }) => {
    const { layout, discriminator } = klend[account];
    return new Uint8Array(Buffer.concat([discriminator, filled(layout, fields)]));
  },
  kamino_worth: async ({ obligation, reserves, slot }) => {
    // Numbers have as many digits as they need. Debts grow by the rate of what was lent before, as in the program: the
    // SDK's estimate of them takes the rate of what is lent after.
    const { KaminoObligation, KaminoReserve, Obligation } = klend;
    Decimal.set({ precision: 80 });
    const price = { price: new Decimal(1), decimals: new Decimal(6), timestamp: 0n, valid: true };
    const known = new Map(reserves.map(([at, content]) =>
      [at, KaminoReserve.fromAccountData(at, Buffer.from(content), price, null, 500)]));
    const market = { getReserveByAddress: (at) => known.get(at), state: { referralFeeBps: 0 } };
    const { deposits, borrows } = Obligation.decode(Buffer.from(obligation));
    const rates = KaminoObligation.getRatesForObligation(market, deposits, borrows, slot).collateralExchangeRates;
    const debts = new Map([...known].map(([at, each]) => [at, each.calculateFutureCumulativeBorrowRate(slot)]));
    const one = () => new Decimal(1);
    const supplied = KaminoObligation.calculateObligationDeposits(market, deposits, rates, 0, one).deposits;
    const owed = KaminoObligation.calculateObligationBorrows(market, borrows, debts, 0, one).borrows;
    const shown = (found, whole) =>
      Object.fromEntries([...found].map(([at, { amount }]) => [at, BigInt(whole(amount).toFixed(0))]));
    return [shown(supplied, (each) => each.floor()), shown(owed, (each) => each.ceil())];
  },
};

run(jobs);
