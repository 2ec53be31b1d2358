// Jobs of SDKs that live together.
const path = require("path");
const { from, home, run } = require("./jobs.cjs");
const { BorshAccountsCoder } = from("@coral-xyz/anchor");
const { Connection, PublicKey } = from("@solana/web3.js");
const BN = from("bn.js");
const core = from("@orca-so/whirlpools-core/dist/nodejs/orca_whirlpools_core_js_bindings.js");
const raydium = from("@raydium-io/raydium-sdk-v2");

// What older SDKs want: keys and big numbers as objects of their own.
const older = (value) => {
  if (typeof value === "bigint") return new BN(value.toString());
  if (typeof value === "string") return new PublicKey(value);
  if (value instanceof Uint8Array) return [...value];
  if (Array.isArray(value)) return value.map(older);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, older(each)]));
  return value;
};
const written = (layout, size, fields) => {
  const bytes = Buffer.alloc(size);
  layout.encode(fields, bytes);
  return new Uint8Array(bytes);
};
const damm = () => new (from("@meteora-ag/cp-amm-sdk").CpAmm)(new Connection("http://localhost:1"))._program;
const jupiter = async () => {
  const folder = path.join(home, "node_modules/@jup-ag/lend"), load = (file) => import(path.join(folder, "dist", file));
  const { BorshCoder } = require(require.resolve("@coral-xyz/anchor", { paths: [folder] }));
  const earn = await load("earn/index.mjs"), { lendingPda, liquidityPda } = await load("index.mjs");
  const { idl } = earn.getLendingProgram({ connection: new Connection("http://localhost:1") });
  return { earn, lendingPda, liquidityPda, coder: new BorshCoder(idl) };
};
const meteora = () => from("@meteora-ag/dlmm").createProgram(new Connection("http://localhost:1"));

const jobs = {
  pyth_price: async (fields) => {
    const { IDL } = from("@pythnetwork/pyth-solana-receiver/dist/cjs/idl/pyth_solana_receiver.cjs");
    return new Uint8Array(await new BorshAccountsCoder(IDL).encode("priceUpdateV2", older(fields)));
  },
  pyth_address: async ({ receiver, feed, shard }) => {
    const seeds = [Buffer.from([shard & 255, shard >> 8]), Buffer.from(feed)];
    return PublicKey.findProgramAddressSync(seeds, new PublicKey(receiver))[0];
  },
  stake_pool: async (fields) => {
    const { StakePoolLayout } = from("@solana/spl-stake-pool");
    return written(StakePoolLayout, 611, older(fields));
  },
  marinade: async ({ account, ...fields }) => {
    const { IDL } = from("@marinade.finance/marinade-ts-sdk/dist/src/programs/idl/types/marinade_finance.js");
    return new Uint8Array(await new BorshAccountsCoder(IDL).encode(account, older(fields)));
  },
  orca: async ({ encoder, fields }) => {
    const client = await import(path.join(home, "node_modules/@orca-so/whirlpools-client/dist/index.js"));
    return client[encoder]().encode(fields);
  },
  orca_address: async ({ of, arguments: parts }) => {
    const client = await import(path.join(home, "node_modules/@orca-so/whirlpools-client/dist/index.js"));
    return (await client[of](...parts))[0];
  },
  orca_core: async ({ of, arguments: parts }) => core[of](...parts),
  orca_roots: async ({ ticks }) => ticks.map((tick) => core.tickIndexToSqrtPrice(tick)),
  raydium: async ({ layout, discriminator, fields }) => {
    const plain = Object.entries(fields).filter(([, each]) => each instanceof Uint8Array);
    const bytes = written(raydium[layout], raydium[layout].span, { ...older(fields), ...Object.fromEntries(plain) });
    bytes.set(Buffer.from(discriminator, "hex")); // the layout leaves the mark of the account to the program
    return bytes;
  },
  raydium_address: async ({ of, arguments: parts }) => {
    const keys = parts.map((each) => (typeof each === "string" ? new PublicKey(each) : each));
    return raydium[of](...keys).publicKey;
  },
  dlmm: async ({ account, fields, more }) => {
    const coder = meteora().coder, { layout, discriminator } = coder.accounts.accountLayouts.get(account);
    const bytes = Buffer.alloc(20_000);
    const size = layout.encode(older(fields), bytes);
    const rest = (more ?? []).map((each) => coder.types.encode("positionBinData", older(each)));
    return new Uint8Array(Buffer.concat([Buffer.from(discriminator), bytes.subarray(0, size), ...rest]));
  },
  dlmm_address: async ({ pair, index, program }) => {
    const { deriveBinArray } = from("@meteora-ag/dlmm");
    return deriveBinArray(new PublicKey(pair), new BN(index), new PublicKey(program))[0];
  },
  dlmm_worth: async ({ position, pair, arrays, time }) => {
    const sdk = from("@meteora-ag/dlmm"), program = meteora();
    const bytes = (each) => Buffer.from(each), mint = { decimals: 6, tlvData: Buffer.alloc(0) };
    const own = sdk.wrapPosition(program, PublicKey.unique(), { data: bytes(position) });
    const whole = sdk.decodeAccount(program, "lbPair", bytes(pair));
    const bins = arrays.map(([at, content]) => [at, sdk.decodeAccount(program, "binArray", bytes(content))]);
    const clock = { unixTimestamp: new BN(time), epoch: new BN(700) };
    const found = await (sdk.default ?? sdk).processPosition(
      program, whole, clock, own, mint, mint, null, null, new Map(bins),
    );
    const { totalXAmount, totalYAmount, feeX, feeY, rewardOne, rewardTwo } = found;
    return [new BN(totalXAmount), new BN(totalYAmount), feeX, feeY, rewardOne, rewardTwo];
  },
  damm: async ({ account, fields }) => {
    const { layout, discriminator } = damm().coder.accounts.accountLayouts.get(account), bytes = Buffer.alloc(2_000);
    const size = layout.encode(older(fields), bytes);
    return new Uint8Array(Buffer.concat([Buffer.from(discriminator), bytes.subarray(0, size)]));
  },
  damm_address: async ({ mint }) => from("@meteora-ag/cp-amm-sdk").derivePositionAddress(new PublicKey(mint)),
  damm_worth: async ({ position, pool, time, point }) => {
    const sdk = from("@meteora-ag/cp-amm-sdk"), coder = damm().coder.accounts;
    const own = coder.decode("position", Buffer.from(position)), whole = coder.decode("pool", Buffer.from(pool));
    const fees = sdk.getUnClaimLpFee(whole, own, new BN(time));
    const rewards = [0, 1].map((each) => sdk.getUserRewardPending(whole, own, each, new BN(time), new BN(1)));
    const fresh = sdk.getAvailableVestingLiquidity(own, new BN(point));
    const given = (liquidity) => {
      const { collectFeeMode, sqrtPrice, sqrtMinPrice, sqrtMaxPrice, tokenAAmount, tokenBAmount } = whole;
      return [
        sdk.getAmountAFromLiquidityDelta(
          sqrtPrice, sqrtMaxPrice, liquidity, sdk.Rounding.Down, collectFeeMode, tokenAAmount, whole.liquidity,
        ),
        sdk.getAmountBFromLiquidityDelta(
          sqrtMinPrice, sqrtPrice, liquidity, sdk.Rounding.Down, collectFeeMode, tokenBAmount, whole.liquidity,
        ),
      ];
    };
    return {
      free: given(own.unlockedLiquidity.add(fresh)), vesting: given(own.vestedLiquidity.sub(fresh)),
      locked: given(own.permanentLockedLiquidity), fees: [fees.feeTokenA, fees.feeTokenB],
      rewards: rewards.map((each) => each.userPendingReward),
    };
  },
  jupiter: async ({ account, fields }) => {
    return new Uint8Array(await (await jupiter()).coder.accounts.encode(account, older(fields)));
  },
  jupiter_addresses: async ({ mint }) => {
    const { lendingPda, liquidityPda } = await jupiter(), asset = new PublicKey(mint);
    const own = [lendingPda.getLendingToken(asset), lendingPda.getLendingAdmin(), lendingPda.getLending(asset)];
    return [...own, liquidityPda.getReserve(asset)];
  },
  jupiter_assets: async ({ mint, accounts, supply, raw }) => {
    // The SDK asks a node for accounts, the supply and the balance: these are what the node would say.
    const { earn } = await jupiter(), owner = PublicKey.unique();
    const account = async (key) => {
      const found = accounts[key.toBase58()];
      return found ? { data: Buffer.from(found), owner, lamports: 1, executable: false } : null;
    };
    const connection = {
      getAccountInfo: account, getAccountInfoAndContext: async (key) => ({ value: await account(key), context: {} }),
      getTokenSupply: async () => ({ value: { amount: supply.toString() } }),
      getTokenAccountBalance: async () => ({ value: { amount: raw.toString() } }),
    };
    const found = await earn.getUserLendingPositionByAsset({ user: owner, asset: new PublicKey(mint), connection });
    return found.underlyingAssets;
  },
  raydium_withdrawn: async ({ pool, vaults, raw, first }) => {
    // The SDK asks a node for the pool and its vaults: these are what the node would say.
    const layout = first ? raydium.liquidityStateV4Layout : raydium.CpmmPoolInfoLayout;
    const whole = older(pool), at = PublicKey.unique();
    const vault = (amount) => {
      const content = Buffer.alloc(165);
      content.writeBigUInt64LE(amount, 64);
      return content;
    };
    const keys = first ? [whole.baseVault, whole.quoteVault] : [whole.vaultA, whole.vaultB];
    const said = { [keys[0]]: vault(vaults[0]), [keys[1]]: vault(vaults[1]) };
    said[at] = Buffer.from(written(layout, layout.span, whole));
    const account = (key) => ({ data: said[key], owner: PublicKey.default, lamports: 1, executable: false });
    const connection = { getMultipleAccountsInfo: async (keys) => keys.map(account) };
    const { cpmm, liquidity } = new raydium.Raydium({ connection, cluster: "mainnet", api: {} });
    const found = first ? await liquidity.getRpcPoolInfo(at.toBase58()) : await cpmm.getRpcPoolInfo(at.toBase58());
    const shares = first ? found.lpReserve : found.lpAmount;
    return [found.baseReserve, found.quoteReserve].map((each) => new BN(raw.toString()).mul(each).div(shares));
  },
  raydium_earned: async ({ pool, position, ticks, time }) => {
    const [whole, own, lower, upper] = older([pool, position, ...ticks]);
    const known = whole.rewardInfos.map(() => ({ mint: { programId: PublicKey.default } }));
    const paying = whole.rewardInfos.filter((each) => !each.mint.equals(PublicKey.default));
    const rewardInfos = await raydium.PoolUtil.updatePoolRewardInfos({
      apiPoolInfo: { rewardDefaultInfos: known }, chainTime: time, poolLiquidity: whole.liquidity, rewardInfos: paying,
    });
    const fees = raydium.PositionUtils.GetPositionFees(whole, own, lower, upper);
    const rewards = raydium.PositionUtils.GetPositionRewards({ ...whole, rewardInfos }, own, lower, upper);
    return { fees: [fees.tokenFeeAmountA, fees.tokenFeeAmountB], rewards };
  },
  raydium_roots: async ({ ticks }) => ticks.map((tick) => raydium.TickUtil.getSqrtPriceAtTick(tick)),
  raydium_amounts: async ({ root, lower, upper, liquidity }) => {
    const wide = (value) => new BN(value.toString());
    const at = (tick) => raydium.TickUtil.getSqrtPriceAtTick(tick);
    return raydium.LiquidityMathUtil.getAmountsForLiquidity(wide(root), at(lower), at(upper), wide(liquidity), false);
  },
};

run(jobs);
