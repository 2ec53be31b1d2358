// A beacon chain that runs as fast as the processor allows and serves the Beacon REST API.
//
//   LODESTAR_PRESET=minimal node beacon_runtime.mjs [--port 9600] [--validators 64] [--slots 200] [--seed 1]
//                                                   [--tick MS] [--fork fulu|electra|deneb|capella] [--genesis SECONDS]
//
// Real (Lodestar's published packages): genesis rules, epoch and block processing, rewards, penalties, withdrawals,
// deposits, exits, slashings, consolidations, finality; every route's URL, query and JSON encoding.
// Not real (this file): who proposes what - signatures and execution payloads are placeholders, there is one branch,
// and the chain is advanced by --slots, --tick or POST /local/advance.
//
// Local controls (JSON bodies):
//   POST /local/advance {slots, miss?: [slot,...]}       produce (or skip) blocks
//   POST /local/offline {validators: [...]}              they stop attesting, signing and proposing
//   POST /local/payload {slot, blockNumber, blockHash, feeRecipient}   what a slot's block is to carry
//   POST /local/exit {validators}                        voluntary exits in the next block
//   POST /local/slash {validators}                       double-proposal slashings in the next block
//   POST /local/deposit {validator?, pubkey?, amount, credentials?}   deposit request of the execution layer: top-up
//                                                        (by the key where there is no validator yet), or a new
//                                                        validator, with withdrawal credentials of whoever pays
//   POST /local/withdrawable {validator, epoch}          another end of its stay, as a long queue of exits brings
//   POST /local/withdraw {validator, amount}             EIP-7002 request; amount 0 is a full exit
//   POST /local/rewind {slot}                            forget what came after a slot: what follows is another branch
//   POST /local/consolidate {source, target}             EIP-7251 request; source = target switches to 0x02 credentials
import { parseArgs } from "node:util";
import fastify from "fastify";
import { createBeaconConfig, createChainForkConfig } from "@lodestar/config";
import { minimalChainConfig, mainnetChainConfig } from "@lodestar/config/configs";
import * as P from "@lodestar/params";
import { ssz } from "@lodestar/types";
import * as st from "@lodestar/state-transition";

const { values: opt } = parseArgs({
  options: {
    port: { type: "string", default: "9600" },
    validators: { type: "string", default: "64" },
    slots: { type: "string", default: "0" },
    seed: { type: "string", default: "1" },
    tick: { type: "string" },
    fork: { type: "string", default: "electra" },
    genesis: { type: "string", default: "1606824023" },
  },
});

// --- configuration and genesis ------------------------------------------------------------------------------------
const FORKS = ["ALTAIR", "BELLATRIX", "CAPELLA", "DENEB", "ELECTRA", "FULU"];
const base = P.ACTIVE_PRESET === "minimal" ? minimalChainConfig : mainnetChainConfig;
const overrides = { SHARD_COMMITTEE_PERIOD: 1, MIN_VALIDATOR_WITHDRAWABILITY_DELAY: 4 };
FORKS.forEach((name, i) => {
  overrides[`${name}_FORK_EPOCH`] = i <= FORKS.indexOf(opt.fork.toUpperCase()) ? 0 : Infinity;
});
const chainConfig = createChainForkConfig({ ...base, ...overrides });
const SLOTS = P.SLOTS_PER_EPOCH;
const types = chainConfig.getForkTypes(0);
const seq = chainConfig.getForkSeq(0);
const electra = seq >= P.ForkSeq.electra;
const root = (byte) => new Uint8Array(32).fill(byte);
const hex = (bytes) => "0x" + Buffer.from(bytes).toString("hex");

const secret = (index) => st.interopSecretKey(index);
function executionCredentials(index, prefix = 1) {
  const out = new Uint8Array(32);
  out[0] = prefix;
  out[12] = 0xaa;
  new DataView(out.buffer).setUint32(28, index);
  return out;
}

function genesis(count) {
  const state = types.BeaconState.defaultViewDU();
  state.genesisTime = Number(opt.genesis);
  state.fork = ssz.phase0.Fork.toViewDU({
    previousVersion: chainConfig[`${opt.fork.toUpperCase()}_FORK_VERSION`],
    currentVersion: chainConfig[`${opt.fork.toUpperCase()}_FORK_VERSION`],
    epoch: 0,
  });
  for (let i = 0; i < count; i++) {
    state.validators.push(
      ssz.phase0.Validator.toViewDU({
        pubkey: secret(i).toPublicKey().toBytes(),
        withdrawalCredentials: executionCredentials(i),
        slashed: false,
        effectiveBalance: P.MAX_EFFECTIVE_BALANCE,
        activationEligibilityEpoch: 0,
        activationEpoch: 0,
        exitEpoch: P.FAR_FUTURE_EPOCH,
        withdrawableEpoch: P.FAR_FUTURE_EPOCH,
      }),
    );
    state.balances.push(P.MAX_EFFECTIVE_BALANCE);
    state.previousEpochParticipation.push(0);
    state.currentEpochParticipation.push(0);
    state.inactivityScores.push(0);
  }
  for (let i = 0; i < P.EPOCHS_PER_HISTORICAL_VECTOR; i++) state.randaoMixes.set(i, root(0x42));
  state.eth1Data = ssz.phase0.Eth1Data.toViewDU({
    depositRoot: root(0),
    depositCount: BigInt(count),
    blockHash: root(0x42),
  });
  state.eth1DepositIndex = count;
  state.latestBlockHeader = ssz.phase0.BeaconBlockHeader.toViewDU({
    slot: 0,
    proposerIndex: 0,
    parentRoot: root(0),
    stateRoot: root(0),
    bodyRoot: types.BeaconBlockBody.hashTreeRoot(types.BeaconBlockBody.defaultValue()),
  });
  const payload = types.ExecutionPayloadHeader.defaultViewDU();
  payload.blockHash = root(0x42);
  payload.gasLimit = 30_000_000;
  state.latestExecutionPayloadHeader = payload;
  if (electra) {
    state.depositRequestsStartIndex = P.UNSET_DEPOSIT_REQUESTS_START_INDEX;
    state.earliestExitEpoch = 5;
    state.earliestConsolidationEpoch = 5;
  }
  state.commit();
  state.genesisValidatorsRoot = types.BeaconState.fields.validators.hashTreeRoot(
    state.validators.getAllReadonlyValues(),
  );
  const active = Uint32Array.from({ length: count }, (_, i) => i);
  const increments = new Uint16Array(count).fill(P.MAX_EFFECTIVE_BALANCE / P.EFFECTIVE_BALANCE_INCREMENT);
  const { syncCommittee } = st.getNextSyncCommittee(seq, state, active, increments);
  state.currentSyncCommittee = ssz.altair.SyncCommittee.toViewDU(syncCommittee);
  state.nextSyncCommittee = ssz.altair.SyncCommittee.toViewDU(syncCommittee);
  if (seq >= P.ForkSeq.fulu) {
    state.commit();
    const known = Object.create(state, { epochCtx: { value: { effectiveBalanceIncrements: increments } } });
    const ahead = Array.from({ length: P.MIN_SEED_LOOKAHEAD + 1 }, (_, epoch) =>
      Array.from(st.computeProposerIndices(seq, known, st.computeEpochShuffling(state, active, epoch), epoch)),
    );
    state.proposerLookahead = ssz.fulu.ProposerLookahead.toViewDU(ahead.flat());
  }
  state.commit();
  return state;
}

const genesisState = genesis(Number(opt.validators));
const config = createBeaconConfig(chainConfig, genesisState.genesisValidatorsRoot);
const pubkeyCache = st.createPubkeyCache();

// --- the chain ----------------------------------------------------------------------------------------------------
const posts = new Map(); // slot -> state after that slot (block applied if there is one)
const preStates = new Map(); // slot -> state before the block of that slot
const blocks = new Map(); // slot -> {signed, root}
const bySlotRoot = new Map(); // block root -> slot
const offline = new Set();
const payloads = new Map(); // slot -> the block of an execution chain that its block carries
const bytesOf = (text) => new Uint8Array(Buffer.from(text.slice(2), "hex"));
let queue = { exits: [], slashings: [], deposits: [], withdrawals: [], consolidations: [] };
let head = 0;
const listeners = new Set();
const emit = (type, message) => {
  for (const { topics, onEvent } of listeners) if (topics.includes(type)) onEvent({ type, message });
};

posts.set(0, st.createCachedBeaconState(genesisState, { config, pubkeyCache }));
{
  const header = genesisState.latestBlockHeader.clone();
  header.stateRoot = genesisState.hashTreeRoot();
  header.commit();
  bySlotRoot.set(hex(header.hashTreeRoot()), 0);
}

let random = Number(opt.seed) >>> 0;
function dice() {
  random = (random * 1664525 + 1013904223) >>> 0;
  return random / 2 ** 32;
}

function attestation(pre, slot) {
  const epoch = Math.floor(slot / SLOTS);
  const committees = pre.epochCtx.getShufflingAtEpoch(epoch).committees[slot % SLOTS];
  const current = epoch === pre.epochCtx.epoch;
  const data = {
    slot,
    index: 0,
    beaconBlockRoot: st.getBlockRootAtSlot(pre, slot),
    source: (current ? pre.currentJustifiedCheckpoint : pre.previousJustifiedCheckpoint).toValue(),
    target: { epoch, root: st.getBlockRoot(pre, epoch) },
  };
  const votes = (committee) => Array.from(committee, (v) => !offline.has(v) && dice() > 0.02);
  if (electra) {
    const type = ssz.electra.Attestation,
      att = type.defaultValue();
    att.data = data;
    const voted = committees.map(votes);
    const some = voted.map((_, i) => i).filter((i) => voted[i].some(Boolean));
    if (!some.length) return [];
    att.aggregationBits = type.fields.aggregationBits.fromJson(bitlist(some.flatMap((i) => voted[i])));
    for (const i of some) att.committeeBits.set(i, true);
    return [att];
  }
  return committees
    .map((committee, index) => {
      const att = ssz.phase0.Attestation.defaultValue();
      att.data = { ...data, index };
      att.aggregationBits = ssz.phase0.Attestation.fields.aggregationBits.fromJson(bitlist(votes(committee)));
      return att;
    })
    .filter((att) => att.aggregationBits.getTrueBitIndexes().length > 0);
}

function bitlist(bits) {
  // SSZ bitlist as hex, with the closing length bit
  const out = new Uint8Array(Math.floor(bits.length / 8) + 1);
  bits.concat(true).forEach((bit, i) => {
    if (bit) out[i >> 3] |= 1 << (i & 7);
  });
  return hex(out);
}

function produce(slot, missed) {
  const parent = posts.get(slot - 1);
  const pre = st.processSlots(parent.clone(), slot);
  preStates.set(slot, pre.clone());
  const proposer = pre.epochCtx.getBeaconProposer(slot);
  const epochStart = slot % SLOTS === 0;
  if (missed || offline.has(proposer) || pre.validators.getReadonly(proposer).slashed) {
    posts.set(slot, pre);
  } else {
    const block = types.BeaconBlock.defaultValue(),
      body = block.body;
    block.slot = slot;
    block.proposerIndex = proposer;
    block.parentRoot = pre.latestBlockHeader.hashTreeRoot();
    body.eth1Data = pre.eth1Data.toValue();
    let previous = slot - 1; // votes for every slot since the last block
    for (let s = Math.max(0, slot - SLOTS); s <= previous && body.attestations.length < 8; s++)
      if (s === previous || (s > 0 && !blocks.has(s + 1) && s + 1 < slot))
        body.attestations.push(...attestation(pre, s));
    body.attestations.splice(electra ? P.MAX_ATTESTATIONS_ELECTRA : P.MAX_ATTESTATIONS);
    const committee = pre.epochCtx.currentSyncCommitteeIndexed.validatorIndices;
    for (let i = 0; i < P.SYNC_COMMITTEE_SIZE; i++)
      body.syncAggregate.syncCommitteeBits.set(i, !offline.has(committee[i]) && dice() > 0.02);
    const payload = body.executionPayload,
      last = pre.latestExecutionPayloadHeader;
    Object.assign(payload, {
      parentHash: last.blockHash,
      prevRandao: st.getRandaoMix(pre, pre.epochCtx.epoch),
      gasLimit: 30_000_000,
      feeRecipient: new Uint8Array(20).fill(0xfe),
      blockNumber: last.blockNumber + 1,
      baseFeePerGas: 7n,
      timestamp: st.computeTimeAtSlot(config, slot, pre.genesisTime),
      gasUsed: 21_000,
      withdrawals: st.getExpectedWithdrawals(seq, pre).expectedWithdrawals,
    });
    body.voluntaryExits = queue.exits.map((validatorIndex) => ({
      message: { epoch: pre.epochCtx.epoch, validatorIndex },
      signature: new Uint8Array(96),
    }));
    body.proposerSlashings = queue.slashings.map((proposerIndex) => {
      const header = (byte) => ({
        message: {
          slot: BigInt(slot - 1),
          proposerIndex,
          parentRoot: root(byte),
          stateRoot: root(0),
          bodyRoot: root(0),
        },
        signature: new Uint8Array(96),
      });
      return { signedHeader1: header(1), signedHeader2: header(2) };
    });
    if (electra)
      body.executionRequests = {
        deposits: queue.deposits,
        withdrawals: queue.withdrawals,
        consolidations: queue.consolidations,
      };
    payload.blockHash = types.ExecutionPayload.hashTreeRoot(payload);
    const own = payloads.get(slot);
    if (own) {
      payload.blockNumber = own.blockNumber;
      payload.blockHash = bytesOf(own.blockHash);
      payload.feeRecipient = bytesOf(own.feeRecipient);
    }
    queue = { exits: [], slashings: [], deposits: [], withdrawals: [], consolidations: [] };
    const signed = { message: block, signature: new Uint8Array(96) };
    const post = st.stateTransition(parent, signed, {
      verifyStateRoot: false,
      verifyProposer: false,
      verifySignatures: false,
      executionPayloadStatus: st.ExecutionPayloadStatus.valid,
      dataAvailabilityStatus: st.DataAvailabilityStatus.Available,
      dontTransferCache: true,
    });
    block.stateRoot = post.hashTreeRoot();
    const blockRoot = types.BeaconBlock.hashTreeRoot(block);
    posts.set(slot, post);
    blocks.set(slot, { signed, root: blockRoot });
    bySlotRoot.set(hex(blockRoot), slot);
    emit("block", { slot, block: hex(blockRoot), executionOptimistic: false });
    emit("head", {
      slot,
      block: hex(blockRoot),
      state: hex(block.stateRoot),
      epochTransition: epochStart,
      previousDutyDependentRoot: hex(root(0)),
      currentDutyDependentRoot: hex(root(0)),
      executionOptimistic: false,
    });
  }
  head = slot;
  const now = posts.get(slot).finalizedCheckpoint,
    before = parent.finalizedCheckpoint;
  if (now.epoch !== before.epoch)
    emit("finalized_checkpoint", {
      block: hex(now.root),
      state: hex(root(0)),
      epoch: now.epoch,
      executionOptimistic: false,
    });
}

// --- Beacon API ---------------------------------------------------------------------------------------------------
class ApiError extends Error {
  constructor(statusCode, message) {
    super(message);
    this.statusCode = statusCode;
  }
}
const finalizedSlot = () => posts.get(head).finalizedCheckpoint.epoch * SLOTS;
const meta = (slot) => ({ executionOptimistic: false, finalized: slot <= finalizedSlot(), version: opt.fork });

function stateOf(id) {
  const slot =
    id === "head"
      ? head
      : id === "genesis"
        ? 0
        : id === "finalized"
          ? finalizedSlot()
          : id === "justified"
            ? posts.get(head).currentJustifiedCheckpoint.epoch * SLOTS
            : Number(id);
  const state = posts.get(slot);
  if (!state) throw new ApiError(404, `No state found for id '${id}'`);
  return state;
}
function blockOf(id) {
  let slot =
    typeof id === "string" && id.startsWith("0x")
      ? bySlotRoot.get(id)
      : id === "head"
        ? head
        : id === "finalized"
          ? finalizedSlot()
          : id === "genesis"
            ? 0
            : Number(id);
  if (["head", "finalized"].includes(id)) while (slot > 0 && !blocks.has(slot)) slot--;
  const found = blocks.get(slot);
  if (!found) throw new ApiError(404, `No block found for id '${id}'`);
  return { slot, ...found };
}
function status(v, epoch, balance) {
  if (v.activationEpoch > epoch)
    return v.activationEligibilityEpoch === P.FAR_FUTURE_EPOCH ? "pending_initialized" : "pending_queued";
  if (epoch < v.exitEpoch)
    return v.exitEpoch === P.FAR_FUTURE_EPOCH ? "active_ongoing" : v.slashed ? "active_slashed" : "active_exiting";
  if (epoch < v.withdrawableEpoch) return v.slashed ? "exited_slashed" : "exited_unslashed";
  return balance === 0 ? "withdrawal_done" : "withdrawal_possible";
}
function validatorsOf(state, ids, statuses) {
  const epoch = Math.floor(state.slot / SLOTS),
    all = state.validators.getAllReadonlyValues(),
    balances = state.balances.getAll();
  const rows = all.map((validator, index) => ({
    index,
    balance: balances[index],
    status: status(validator, epoch, balances[index]),
    validator,
  }));
  const wanted = ids?.length ? new Set(ids.map(String)) : null;
  return rows.filter(
    (row) =>
      (!wanted || wanted.has(String(row.index)) || wanted.has(hex(row.validator.pubkey))) &&
      (!statuses?.length || statuses.some((s) => row.status === s || row.status.startsWith(s + "_"))),
  );
}
function headerOf({ slot, signed, root: blockRoot }) {
  const { body, ...rest } = signed.message;
  return {
    root: blockRoot,
    canonical: true,
    header: { message: { ...rest, bodyRoot: types.BeaconBlockBody.hashTreeRoot(body) }, signature: signed.signature },
  };
}
const beacon = {
  getGenesis: () => ({
    data: {
      genesisTime: genesisState.genesisTime,
      genesisValidatorsRoot: genesisState.genesisValidatorsRoot,
      genesisForkVersion: config.GENESIS_FORK_VERSION,
    },
  }),
  getStateFork: ({ stateId }) => {
    const s = stateOf(stateId);
    return { data: s.fork.toValue(), meta: meta(s.slot) };
  },
  getStateRoot: ({ stateId }) => {
    const s = stateOf(stateId);
    return { data: { root: s.hashTreeRoot() }, meta: meta(s.slot) };
  },
  getStateFinalityCheckpoints: ({ stateId }) => {
    const s = stateOf(stateId);
    return {
      meta: meta(s.slot),
      data: {
        previousJustified: s.previousJustifiedCheckpoint.toValue(),
        currentJustified: s.currentJustifiedCheckpoint.toValue(),
        finalized: s.finalizedCheckpoint.toValue(),
      },
    };
  },
  getStateValidators: ({ stateId, validatorIds, statuses }) => {
    const s = stateOf(stateId);
    return { data: validatorsOf(s, validatorIds, statuses), meta: meta(s.slot) };
  },
  postStateValidators: (args) => beacon.getStateValidators(args),
  getStateValidator: ({ stateId, validatorId }) => {
    const s = stateOf(stateId),
      [row] = validatorsOf(s, [validatorId]);
    if (!row) throw new ApiError(404, "Validator not found");
    return { data: row, meta: meta(s.slot) };
  },
  getStateValidatorBalances: ({ stateId, validatorIds }) => {
    const s = stateOf(stateId);
    return {
      data: validatorsOf(s, validatorIds).map(({ index, balance }) => ({ index, balance })),
      meta: meta(s.slot),
    };
  },
  postStateValidatorBalances: (args) => beacon.getStateValidatorBalances(args),
  getPendingDeposits: ({ stateId }) => {
    const s = stateOf(stateId);
    return { data: s.pendingDeposits.getAllReadonlyValues(), meta: meta(s.slot) };
  },
  getPendingPartialWithdrawals: ({ stateId }) => {
    const s = stateOf(stateId);
    return { data: s.pendingPartialWithdrawals.getAllReadonlyValues(), meta: meta(s.slot) };
  },
  getPendingConsolidations: ({ stateId }) => {
    const s = stateOf(stateId);
    return { data: s.pendingConsolidations.getAllReadonlyValues(), meta: meta(s.slot) };
  },
  getStateRandao: ({ stateId, epoch }) => {
    const s = stateOf(stateId);
    return { data: { randao: st.getRandaoMix(s, epoch ?? s.epochCtx.epoch) }, meta: meta(s.slot) };
  },
  getEpochCommittees: ({ stateId, epoch }) => {
    const s = stateOf(stateId),
      wanted = epoch ?? s.epochCtx.epoch,
      data = [];
    s.epochCtx.getShufflingAtEpoch(wanted).committees.forEach((inSlot, i) =>
      inSlot.forEach((validators, index) =>
        data.push({ index, slot: wanted * SLOTS + i, validators: Array.from(validators) }),
      ),
    );
    return { data, meta: meta(s.slot) };
  },
  getEpochSyncCommittees: ({ stateId }) => {
    const s = stateOf(stateId),
      v = Array.from(s.epochCtx.currentSyncCommitteeIndexed.validatorIndices);
    return { data: { validators: v, validatorAggregates: [] }, meta: meta(s.slot) };
  },
  getBlockV2: ({ blockId }) => {
    const b = blockOf(blockId);
    return { data: b.signed, meta: meta(b.slot) };
  },
  getBlockRoot: ({ blockId }) => {
    const b = blockOf(blockId);
    return { data: { root: b.root }, meta: meta(b.slot) };
  },
  getBlockHeader: ({ blockId }) => {
    const b = blockOf(blockId);
    return { data: headerOf(b), meta: meta(b.slot) };
  },
  getBlockHeaders: ({ slot, parentRoot }) => {
    const b = blockOf(slot ?? "head");
    void parentRoot;
    return { data: [headerOf(b)], meta: meta(b.slot) };
  },
  getBlockAttestationsV2: ({ blockId }) => {
    const b = blockOf(blockId);
    return { data: b.signed.message.body.attestations, meta: meta(b.slot) };
  },
  async getBlockRewards({ blockId }) {
    const b = blockOf(blockId);
    return {
      data: await st.computeBlockRewards(
        config,
        b.signed.message,
        preStates.get(b.slot).clone(),
        posts.get(b.slot).proposerRewards,
      ),
      meta: meta(b.slot),
    };
  },
  async getSyncCommitteeRewards({ blockId, validatorIds }) {
    const b = blockOf(blockId);
    return {
      data: await st.computeSyncCommitteeRewards(
        config,
        pubkeyCache,
        b.signed.message,
        preStates.get(b.slot).clone(),
        validatorIds,
      ),
      meta: meta(b.slot),
    };
  },
  async getAttestationsRewards({ epoch, validatorIds }) {
    const slot = (epoch + 2) * SLOTS - 1,
      state = posts.get(slot); // the last slot before these votes are settled
    if (!state) throw new ApiError(404, `Epoch ${epoch} is not settled yet`);
    return {
      data: await computeAttestationsRewards(config, pubkeyCache, state.clone(), validatorIds),
      meta: meta(slot),
    };
  },
};
const debug = {
  getStateV2: ({ stateId }) => {
    const s = stateOf(stateId);
    return { data: s.serialize(), meta: meta(s.slot) };
  },
};
const duties = {
  getProposerDuties: ({ epoch }) => {
    const slots = Array.from({ length: SLOTS }, (_, i) => epoch * SLOTS + i).filter((slot) => slot > 0);
    if (slots.at(-1) > head) throw new ApiError(400, `Epoch ${epoch} is not over yet`);
    return {
      data: slots.map((slot) => {
        const validatorIndex = preStates.get(slot).epochCtx.getBeaconProposer(slot);
        return {
          slot,
          validatorIndex,
          pubkey:
            genesisState.validators.length > validatorIndex
              ? genesisState.validators.getReadonly(validatorIndex).pubkey
              : posts.get(head).validators.getReadonly(validatorIndex).pubkey,
        };
      }),
      meta: { executionOptimistic: false, dependentRoot: hex(root(0)) },
    };
  },
};
const { computeAttestationsRewards } = await import(
  new URL("./rewards/attestationsRewards.js", import.meta.resolve("@lodestar/state-transition"))
);
const { chainConfigToJson } = await import("@lodestar/config");
const configApi = {
  getSpec: () => ({
    data: {
      ...chainConfigToJson(config),
      ...Object.fromEntries(Object.entries(P.activePreset).map(([k, v]) => [k, String(v)])),
    },
  }),
  getForkSchedule: () => ({ data: [genesisState.fork.toValue()] }),
  getDepositContract: () => ({
    data: { chainId: config.DEPOSIT_CHAIN_ID, address: config.DEPOSIT_CONTRACT_ADDRESS },
  }),
};
const node = {
  getNodeVersion: () => ({ data: { version: "Lodestar-state-transition/1.46.0" } }),
  getSyncingStatus: () => ({
    data: { headSlot: head, syncDistance: 0, isSyncing: false, isOptimistic: false, elOffline: false },
  }),
  getHealth: () => ({ status: 200 }),
};
const events = {
  eventstream: ({ topics, signal, onEvent }) => {
    const l = { topics, onEvent };
    listeners.add(l);
    signal.addEventListener("abort", () => listeners.delete(l));
  },
};
const rest = (methods) =>
  new Proxy(methods, {
    get: (target, name) => {
      const method = target[name];
      if (!method)
        return () => {
          throw new ApiError(501, `${String(name)} is not part of this local chain`);
        };
      return async (args) => method(args ?? {});
    },
  });

const server = fastify({
  bodyLimit: 10 * 2 ** 20,
  routerOptions: {
    querystringParser: (text) => {
      // ids=1,2 and ids=1&ids=2
      const out = {};
      for (const [key, value] of new URLSearchParams(text))
        for (const part of value.split(",")) out[key] = key in out ? [].concat(out[key], part) : part;
      for (const key of ["topics", "id", "status"]) if (key in out) out[key] = [].concat(out[key]);
      return out;
    },
  },
});
server.setErrorHandler((err, _req, reply) => {
  if (!err.statusCode) console.error(err);
  return reply.code(err.statusCode ?? 500).send({ code: err.statusCode ?? 500, message: err.message });
});
const { registerRoutes } = await import(new URL("./beacon/server/index.js", import.meta.resolve("@lodestar/api")));
registerRoutes(
  server,
  config,
  {
    beacon: rest(beacon),
    config: rest(configApi),
    debug: rest(debug),
    node: rest(node),
    events: rest(events),
    validator: rest(duties),
  },
  ["beacon", "config", "debug", "node", "events", "validator"],
);

// --- local controls -----------------------------------------------------------------------------------------------
const local = (path, act) =>
  server.post("/local/" + path, async (req) => {
    act(req.body ?? {});
    return { head, queued: Object.fromEntries(Object.entries(queue).map(([k, v]) => [k, v.length])) };
  });
const advance = (slots, miss = []) => {
  for (let i = 0; i < slots; i++) produce(head + 1, miss.includes(head + 1));
};
local("advance", ({ slots = 1, miss }) => advance(slots, miss));
local("rewind", ({ slot }) => {
  emit("chain_reorg", {
    slot: head,
    depth: head - slot,
    oldHeadBlock: hex(root(0)),
    newHeadBlock: hex(root(0)),
    oldHeadState: hex(root(0)),
    newHeadState: hex(root(0)),
    epoch: Math.floor(slot / SLOTS),
    executionOptimistic: false,
  });
  for (; head > slot; head--) {
    bySlotRoot.delete(hex(blocks.get(head)?.root ?? root(0)));
    posts.delete(head);
    preStates.delete(head);
    blocks.delete(head);
  }
});
local("offline", ({ validators = [] }) => {
  offline.clear();
  validators.forEach((v) => offline.add(v));
});
local("payload", ({ slot, ...block }) => payloads.set(slot, block));
local("exit", ({ validators }) => queue.exits.push(...validators));
local("slash", ({ validators }) => queue.slashings.push(...validators));
const validatorAt = (index) => posts.get(head).validators.getReadonly(index);
let depositIndex = Number(opt.validators);
local("deposit", ({ validator, pubkey, amount, credentials }) => {
  const fresh = validator === undefined && pubkey === undefined,
    key = fresh ? secret(10_000 + depositIndex) : null;
  const message = {
    pubkey: fresh ? key.toPublicKey().toBytes() : pubkey ? bytesOf(pubkey) : validatorAt(validator).pubkey,
    withdrawalCredentials: credentials
      ? bytesOf(credentials)
      : fresh
        ? executionCredentials(depositIndex)
        : validatorAt(validator).withdrawalCredentials,
    amount,
  };
  let signature = new Uint8Array(96);
  if (fresh) {
    const domain = st.computeDomain(P.DOMAIN_DEPOSIT, config.GENESIS_FORK_VERSION, root(0));
    signature = key.sign(st.computeSigningRoot(ssz.phase0.DepositMessage, message, domain)).toBytes();
  }
  queue.deposits.push({ ...message, signature, index: BigInt(depositIndex++) });
});
local("withdrawable", ({ validator, epoch }) => {
  const post = posts.get(head),
    found = blocks.get(head);
  post.validators.get(validator).withdrawableEpoch = epoch;
  post.commit();
  found.signed.message.stateRoot = post.hashTreeRoot(); // nothing was built upon the block so far
  bySlotRoot.delete(hex(found.root));
  found.root = types.BeaconBlock.hashTreeRoot(found.signed.message);
  bySlotRoot.set(hex(found.root), head);
});
local("withdraw", ({ validator, amount }) =>
  queue.withdrawals.push({
    sourceAddress: validatorAt(validator).withdrawalCredentials.slice(12),
    validatorPubkey: validatorAt(validator).pubkey,
    amount: BigInt(amount),
  }),
);
local("consolidate", ({ source, target }) =>
  queue.consolidations.push({
    sourceAddress: validatorAt(source).withdrawalCredentials.slice(12),
    sourcePubkey: validatorAt(source).pubkey,
    targetPubkey: validatorAt(target).pubkey,
  }),
);

const begin = Date.now();
advance(Number(opt.slots));
await server.listen({ host: "127.0.0.1", port: Number(opt.port) });
console.log(
  JSON.stringify({
    url: `http://127.0.0.1:${server.server.address().port}`,
    head,
    produced_in_ms: Date.now() - begin,
  }),
);
if (opt.tick) setInterval(() => advance(1), Number(opt.tick));
process.on("SIGTERM", () => process.exit(0));
