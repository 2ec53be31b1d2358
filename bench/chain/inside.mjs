// What nodes and explorers tell of transactions beyond their blocks, for replay_node.mjs: traces, the search by address
// of Otterscan, the lists of explorers. Only calls of `pay(address[],uint256)` of one contract move coins inside: what
// they moved is read off their call data.
const PAY = '0xc39328f1';
const hex = (n) => '0x' + n.toString(16);
const strip = (word) => '0x' + word.slice(24);

export function inside({ full, receipts, receiptsOf, txAt, payer, pay = PAY }) {
  const paid = (tx, status) => {
    if (tx.to !== payer || !tx.input.startsWith(pay) || status !== '0x1') return [];
    const words = tx.input.slice(10).match(/.{64}/g),
      each = hex(BigInt('0x' + words[1]));
    return words.slice(3).map((word) => ({ from: payer, to: strip(word), value: each }));
  };
  const at = (n) => JSON.parse(full[n]).transactions.map((tx, i) => [tx, JSON.parse(receipts[n])[i]]);
  const tracesOf = (n) =>
    at(n).flatMap(([tx, receipt]) => {
      const common = {
        blockHash: tx.blockHash,
        blockNumber: n,
        transactionHash: tx.hash,
        transactionPosition: Number(tx.transactionIndex),
      };
      const failed = receipt.status !== '0x1' ? { error: 'Reverted' } : {};
      const inner = paid(tx, receipt.status);
      const call = ({ from, to, value }, input, traceAddress, subtraces) => ({
        action: { from, to, value, gas: tx.gas, input, callType: 'call' },
        result: failed.error ? null : { gasUsed: receipt.gasUsed, output: '0x' },
        ...failed,
        subtraces,
        traceAddress,
        type: 'call',
        ...common,
      });
      const outer = tx.to
        ? call(tx, tx.input, [], inner.length)
        : {
            action: { from: tx.from, value: tx.value, gas: tx.gas, init: tx.input },
            result: { gasUsed: receipt.gasUsed, code: '0x', address: receipt.contractAddress },
            subtraces: 0,
            traceAddress: [],
            type: 'create',
            ...common,
          };
      return [outer, ...inner.map((one, k) => call(one, '0x', [k], 0))];
    });
  const frame = (tx, receipt) => ({
    type: tx.to ? 'CALL' : 'CREATE',
    from: tx.from,
    to: tx.to ?? receipt.contractAddress,
    value: tx.value,
    gas: tx.gas,
    gasUsed: receipt.gasUsed,
    input: tx.input,
    output: '0x',
    ...(receipt.status === '0x1' ? {} : { error: 'execution reverted' }),
    calls: paid(tx, receipt.status).map((one) => ({
      type: 'CALL',
      ...one,
      gas: '0x0',
      gasUsed: '0x0',
      input: '0x',
      output: '0x',
    })),
  });

  // Where each address takes part: sender, recipient, created, or inside. Made once, when somebody asks.
  let places;
  const byAddress = () => {
    if (places) return places;
    places = new Map();
    const note = (address, n, i) => {
      if (!address) return;
      const list = places.get(address) ?? places.set(address, []).get(address);
      const [a, b] = list.at(-1) ?? [-1, -1];
      if (a !== n || b !== i) list.push([n, i]);
    };
    full.forEach((text, n) => {
      if (!text.includes('"transactions":[{')) return;
      at(n).forEach(([tx, receipt], i) => {
        for (const a of new Set([
          tx.from,
          tx.to,
          receipt.contractAddress?.toLowerCase(),
          ...paid(tx, receipt.status).map((x) => x.to),
        ]))
          note(a, n, i);
      });
    });
    return places;
  };
  const within = (address, first, last) =>
    (byAddress().get(address.toLowerCase()) ?? []).filter(([n]) => n >= first && n <= last);
  const page = (found, newestFirst, isFirst, isLast) => ({
    txs: (newestFirst ? found : [...found].reverse()).map(([n, i]) => JSON.parse(full[n]).transactions[i]),
    receipts: (newestFirst ? found : [...found].reverse()).map(([n, i]) => ({
      ...receiptsOf(n)[i],
      timestamp: Number(JSON.parse(full[n]).timestamp),
    })),
    firstPage: isFirst,
    lastPage: isLast,
  });
  // Whole blocks only, as Otterscan's search gives them: a page ends behind the block that fills it.
  const cut = (found, size) => {
    if (found.length <= size) return found;
    let end = size;
    while (end < found.length && found[end][0] === found[end - 1][0]) end++;
    return found.slice(0, end);
  };
  const search = {
    ots_searchTransactionsBefore: ([address, block, size]) => {
      const all = within(address, 0, block ? block - 1 : Infinity).reverse(),
        found = cut(all, size);
      return page(found, true, !block, found.length === all.length);
    },
    ots_searchTransactionsAfter: ([address, block, size]) => {
      const all = within(address, block ? block + 1 : 0, Infinity),
        found = cut(all, size);
      return page([...found].reverse(), true, found.length === all.length, !block);
    },
  };
  const byHash = (hash, txAt) => {
    const [n, i] = txAt.get(hash);
    return at(n)[i];
  };

  return {
    trace: {
      trace_block: ([n]) => tracesOf(Number(n)),
      trace_filter: ([f]) => {
        const first = Number(f.fromBlock ?? 0),
          last = Number(f.toBlock ?? full.length - 1);
        const from = new Set((f.fromAddress ?? []).map((a) => a.toLowerCase())),
          to = new Set((f.toAddress ?? []).map((a) => a.toLowerCase()));
        const heights = new Set([...from, ...to].flatMap((a) => within(a, first, last).map(([n]) => n)));
        const fits = ({ action, result }) => {
          const target = action.to ?? result?.address?.toLowerCase();
          return (from.size === 0 && to.size === 0) || from.has(action.from) || to.has(target);
        };
        const found = [...heights]
          .sort((a, b) => a - b)
          .flatMap(tracesOf)
          .filter(fits);
        const start = f.after ?? 0;
        return found.slice(start, start + (f.count ?? Infinity));
      },
      debug_traceTransaction: ([hash], txAt) => frame(...byHash(hash, txAt)),
      debug_traceBlockByNumber: ([n]) =>
        at(Number(n)).map(([tx, receipt]) => ({ txHash: tx.hash, result: frame(tx, receipt) })),
    },
    ots: {
      ots_getApiLevel: () => 8,
      ...search,
      ots_getInternalOperations: ([hash], txAt) => {
        const [tx, receipt] = byHash(hash, txAt);
        return paid(tx, receipt.status).map((one) => ({ type: 0, ...one }));
      },
    },
    // GET /api?module=account&action=txlist|txlistinternal…, as explorers answer it.
    explorer(query, head) {
      const action = query.get('action'),
        first = Number(query.get('startblock') ?? 0),
        last = Math.min(head, Number(query.get('endblock') ?? head));
      if (action === 'eth_blockNumber') return { jsonrpc: '2.0', id: 1, result: hex(head) };
      const wanted = query.get('address')?.toLowerCase(),
        only = query.get('txhash')?.toLowerCase();
      const heights = only
        ? [txAt.get(only)?.[0]].filter((n) => n !== undefined)
        : wanted
          ? [...new Set(within(wanted, first, last).map(([n]) => n))]
          : Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
      const rows = heights.flatMap((n) => {
        const block = JSON.parse(full[n]),
          time = String(Number(block.timestamp));
        return block.transactions.flatMap((tx, i) => {
          if (only && tx.hash !== only) return [];
          const receipt = JSON.parse(receipts[n])[i];
          const common = {
            blockNumber: String(n),
            timeStamp: time,
            hash: tx.hash,
            isError: receipt.status === '0x1' ? '0' : '1',
            gas: String(Number(tx.gas)),
            gasUsed: String(Number(receipt.gasUsed)),
          };
          if (action === 'txlistinternal') {
            return paid(tx, receipt.status)
              .filter((x) => !wanted || x.from === wanted || x.to === wanted)
              .map((x, k) => ({
                ...common,
                from: x.from,
                to: x.to,
                value: String(BigInt(x.value)),
                contractAddress: '',
                input: '',
                type: 'call',
                traceId: String(k),
                errCode: '',
              }));
          }
          if (wanted && tx.from !== wanted && tx.to !== wanted && receipt.contractAddress?.toLowerCase() !== wanted)
            return [];
          return [
            {
              ...common,
              blockHash: block.hash,
              nonce: String(Number(tx.nonce)),
              transactionIndex: String(i),
              from: tx.from,
              to: tx.to ?? '',
              value: String(BigInt(tx.value)),
              gasPrice: String(BigInt(receipt.effectiveGasPrice)),
              txreceipt_status: receipt.status === '0x1' ? '1' : '0',
              input: tx.input,
              contractAddress: receipt.contractAddress ?? '',
              cumulativeGasUsed: String(Number(receipt.cumulativeGasUsed)),
              confirmations: String(head - n + 1),
            },
          ];
        });
      });
      if (query.get('sort') === 'desc') rows.reverse();
      const size = Math.min(10000, Number(query.get('offset') ?? 10000)) || 10000,
        skipped = (Math.max(1, Number(query.get('page') ?? 1)) - 1) * size;
      const shown = rows.slice(skipped, skipped + size);
      return shown.length
        ? { status: '1', message: 'OK', result: shown }
        : { status: '0', message: 'No transactions found', result: [] };
    },
  };
}
