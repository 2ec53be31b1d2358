export default {
  networks: {
    node: {
      type: "edr-simulated",
      chainType: "l1",
      chainId: 31337,
      hardfork: "prague",
      blockGasLimit: 100_000_000,
      initialDate: "2023-11-14T22:13:20Z",
      mining: { auto: true, mempool: { order: "fifo" } },
    },
  },
};
