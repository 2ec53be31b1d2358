// Jobs of what Metaplex and SPL publish for compressed NFTs.
const { from, run } = require("../jobs.cjs");
const BN = from("bn.js");
const bubblegum = from("@metaplex-foundation/mpl-bubblegum");
const metaplex = from("@metaplex-foundation/mpl-account-compression");
const { createUmi } = from("@metaplex-foundation/umi-bundle-defaults");
const { none } = from("@metaplex-foundation/umi");
const { PublicKey } = from("@solana/web3.js");
const spl = "@solana/spl-account-compression/dist/cjs/src";  // its package names another file, which is not there
const compression = from(`${spl}/index.js`), types = from(`${spl}/types/index.js`);
const header = from(`${spl}/generated/types/ConcurrentMerkleTreeHeader.js`).concurrentMerkleTreeHeaderBeet;
const NOBODY = "11111111111111111111111111111111";
const context = createUmi("http://localhost:1").use(bubblegum.mplBubblegum());

const metadata = (name) => ({
  name, symbol: "LEAF", uri: "https://one.test/7.json", sellerFeeBasisPoints: 500, primarySaleHappened: false,
  isMutable: true, editionNonce: none(), tokenStandard: none(), collection: none(), uses: none(),
  tokenProgramVersion: bubblegum.TokenProgramVersion.Original, creators: [],
});

// A tree with a ring of changes, as its program keeps it: after every change the root, the nodes on the way up, and
// where that was.
const grown = (depth, size, changes) => {
  const empty = Array.from({ length: 2 ** depth }, () => Buffer.alloc(32));
  const tree = new compression.MerkleTree(empty);
  const node = (buffer) => new PublicKey(buffer), logs = [];
  const log = (index) => {
    const pathNodes = [];
    for (let each = tree.leaves[index]; each.parent; each = each.parent) pathNodes.push(node(each.node));
    return { root: node(tree.root), pathNodes, index, _padding: 0 };
  };
  for (let slot = 0; slot < size; slot++) logs.push({ ...log(0), root: node(Buffer.alloc(32)) });
  logs[0] = log(0);
  changes.forEach(([index, leaf], number) => {
    tree.updateLeaf(index, Buffer.from(leaf));
    logs[(number + 1) % size] = log(index);
  });
  return { tree, logs };
};

const jobs = {
  addresses: async () => [
    compression.PROGRAM_ID, metaplex.MPL_ACCOUNT_COMPRESSION_PROGRAM_ID, bubblegum.MPL_BUBBLEGUM_PROGRAM_ID,
  ],
  authority: async ({ tree }) => bubblegum.findTreeConfigPda(context, { merkleTree: tree })[0],
  config: async ({ minted }) => {
    // What Bubblegum keeps of a tree; its accounts are longer than what is in them.
    const value = { treeCreator: NOBODY, treeDelegate: NOBODY, totalMintCapacity: 8, numMinted: minted, isPublic: false,
      isDecompressible: bubblegum.DecompressibleState.Disabled, version: bubblegum.Version.V1 };
    const bytes = new Uint8Array(96);
    bytes.set(bubblegum.getTreeConfigAccountDataSerializer().serialize(value));
    return bytes;
  },
  leaf: async ({ tree, index, owner, delegate, name, version, flags }) => {
    // What a leaf is called, its hash, and the hashes that it is made of.
    const input = { merkleTree: tree, leafIndex: index, owner, delegate: delegate ?? owner };
    const [id] = bubblegum.findLeafAssetIdPda(context, input), said = metadata(name);
    if (version === 1)
      return [id, bubblegum.hashLeaf(context, { ...input, metadata: said }),
        bubblegum.hashMetadataData(said), bubblegum.hashMetadataCreators([])];
    const second = { ...said, collection: none() };
    return [id, bubblegum.hashLeafV2(context, { ...input, metadata: second, flags }),
      bubblegum.hashMetadataDataV2(second), bubblegum.hashMetadataCreators([]),
      bubblegum.hashCollection(NOBODY), bubblegum.hashAssetData()];
  },
  tree: async ({ depth, size, canopy, authority, changes }) => {
    // The bytes of its account after some changes, the coder's own reading of them, and the proofs after each change.
    const { tree, logs } = grown(depth, size, changes);
    const key = (buffer) => new PublicKey(buffer), last = tree.getProof(changes.length ? changes.at(-1)[0] : 0);
    const head = {
      accountType: 1 /* a concurrent tree */,
      header: { __kind: "V1", fields: [{
        maxBufferSize: size, maxDepth: depth, authority: new PublicKey(authority), creationSlot: new BN(7),
        isBatchInitialized: false, padding: [0, 0, 0, 0, 0],
      }] },
    };
    const value = {
      sequenceNumber: new BN(changes.length), activeIndex: new BN(changes.length % size),
      bufferSize: new BN(Math.min(changes.length + 1, size)), changeLogs: logs,
      rightMostPath: { proof: last.proof.map(key), leaf: key(last.leaf), index: last.leafIndex, _padding: 0 },
    };
    const bytes = Buffer.alloc(compression.getConcurrentMerkleTreeAccountSize(depth, size, canopy));
    const first = header.toFixedFromValue(head);
    first.write(bytes, 0, head);
    types.concurrentMerkleTreeBeetFactory(depth, size).write(bytes, first.byteSize, value);
    const read = compression.ConcurrentMerkleTreeAccount.fromBuffer(bytes);
    if (!read.getCurrentRoot().equals(tree.root)) throw new Error("the coder reads another root");
    const proofs = changes.map((_, number) => {
      const then = grown(depth, size, changes.slice(0, number + 1)).tree;
      return changes.map(([index]) => then.getProof(index).proof.map((each) => new PublicKey(each)));
    });
    return [new Uint8Array(bytes), proofs];
  },
};

run(jobs);
