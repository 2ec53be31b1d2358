"""Run cryo; variables RPC_URL FIRST LAST OUT, CRYO_DATASET, CRYO_INNER (blocks per request)."""

import os

import cryo  # type: ignore[import-not-found]

TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
APPROVAL = "0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"

dataset = os.environ.get("CRYO_DATASET", "logs")
cryo.freeze(
    dataset,
    blocks=[f"{os.environ['FIRST']}:{int(os.environ['LAST']) + 1}"],
    rpc=os.environ["RPC_URL"],
    output_dir=os.environ["OUT"],
    verbose=False,
    inner_request_size=int(os.environ.get("CRYO_INNER", "1")),
    **({"topic0": [TRANSFER, APPROVAL]} if dataset == "logs" else {}),
)
