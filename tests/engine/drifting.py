"""A token that misbehaves on request: it rebases, charges fees, moves without events, or logs lies.

Its runtime, in Yul (compiled by solc for Paris):

    let index := sload(not(0))
    let who := calldataload(4)
    let raw := calldataload(36)
    switch shr(224, calldataload(0))
    case 0x70a08231 /* balanceOf(address) */ {
      mstore(0, div(mul(sload(who), index), 1000000000000000000))
      return(0, 32)
    }
    case 0xa9059cbb /* transfer(address,uint256) */ {
      let had := sload(caller())
      if lt(had, raw) { revert(0, 0) }
      sstore(caller(), sub(had, raw))
      sstore(who, add(sload(who), sub(raw, div(mul(raw, sload(not(1))), 10000))))
      told(caller(), who, raw)
    }
    case 0x40c10f19 /* mint(address,uint256) */ { sstore(who, add(sload(who), raw)) told(0, who, raw) }
    case 0x7f8d53c6 /* put(address,uint256), without an event */ { sstore(who, raw) }
    case 0xbc4f2d6d /* rebase(uint256) */ { sstore(not(0), who) }
    case 0xe457e1e5 /* charge(uint256), in basis points */ { sstore(not(1), who) }
    case 0x684b5809 /* pretend(address,uint256), an event alone */ { told(0, who, raw) }
    default { revert(0, 0) }
    function told(from_, to_, raw_) { mstore(0, raw_) log3(0, 32, TRANSFER, from_, to_) }
"""

from __future__ import annotations

from chainfolio.localchain.evm import Tx, created_address
from chainfolio.localchain.node import LocalNode

WAD = 10**18
CREATION = (
    "0x670de0b6b3a7640000600019556101318061001b6000396000f3fe60001954600435906024359060003560e01c906370a08231821461"
    "00c357508063a9059cbb1461009457806340c10f19146100845780637f8d53c61461007f578063bc4f2d6d14610077578063e457e1e514"
    "61006f5763684b58091461006457600080fd5b61006d916100da565b005b505060011955005b505060001955005b509055005b50818161"
    "006d93540181556100da565b503354918183106100be578161006d930333556127106001195483020482038154018155336100f5565b60"
    "0080fd5b670de0b6b3a7640000908454020460005260206000f35b906000526000600080516020610111833981519152602082a3565b90"
    "9160005260008051602061011183398151915260206000a356feddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df5"
    "23b3ef"
)


def drifting(node: LocalNode, owner: str) -> str:
    """Deploys one; where it lies."""
    nonce = int(node.rpc("eth_getTransactionCount", owner, "pending"), 16)
    node.settle([Tx(owner, None, CREATION)])
    return created_address(owner, nonce).lower()
