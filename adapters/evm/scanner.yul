// Many reads in one eth_call, without anything deployed. The runtime is put at an unused address by state override; where
// a node has none, the code of "Creation", with the call data behind it, is what a contract is created with: it creates the
// scanner, calls it, and gives its answer as the code of the new contract, or as revert data where code may not be so long.
// The scanner calls by STATICCALL alone, and is called so itself: no contract can change what another one is asked.
//
// call data:  u32 gas a call, u16 bytes kept of each answer, then groups until the end:
//             u16 length, data, u16 count, count x address     - the same data to each address
//             u16 0xffff,       u16 count, count x address     - the native balance of each address
// answer:     per read u8 status (0 reverted, 1 done, 2 no code there, 3 out of gas), u24 size of the answer, the bytes kept.
// Before a call it makes sure that its gas is there; when it is not, it returns what it has: the caller goes on from there.
// Division instead of shifts: it has to run under the rules of old blocks too (Byzantium and later).
object "Creation" {
  code {
    let size := datasize("Scanner")
    datacopy(0, dataoffset("Scanner"), size)
    let scanner := create(0, 0, size)
    size := sub(codesize(), datasize("Creation"))
    codecopy(0, datasize("Creation"), size)
    pop(staticcall(gas(), scanner, 0, size, 0, 0))
    size := returndatasize()
    returndatacopy(0, 0, size)
    if or(gt(size, 0x6000), lt(gas(), mul(size, 220))) { revert(0, size) }
    return(0, size)
  }
  object "Scanner" {
    code { datacopy(0, dataoffset("runtime"), datasize("runtime")) return(0, datasize("runtime")) }
    object "runtime" {
      code {
        let limit := div(calldataload(0), 0x100000000000000000000000000000000000000000000000000000000)
        let keep := and(div(calldataload(0), 0x10000000000000000000000000000000000000000000000000000), 0xffff)
        let at := 6
        let out := 0x2000
        for {} lt(at, calldatasize()) {} {
          let length := div(calldataload(at), 0x1000000000000000000000000000000000000000000000000000000000000)
          at := add(at, 2)
          let native := eq(length, 0xffff)
          if iszero(native) { calldatacopy(0, at, length) at := add(at, length) }
          let count := div(calldataload(at), 0x1000000000000000000000000000000000000000000000000000000000000)
          at := add(at, 2)
          for {} count { count := sub(count, 1) } {
            if lt(gas(), add(add(limit, div(limit, 32)), 60000)) { return(0x2000, sub(out, 0x2000)) }
            let who := div(calldataload(at), 0x1000000000000000000000000)
            at := add(at, 20)
            switch native
            case 1 {
              mstore(out, or(mul(1, 0x100000000000000000000000000000000000000000000000000000000000000), mul(32, 0x100000000000000000000000000000000000000000000000000000000)))
              mstore(add(out, 4), balance(who))
              out := add(out, 36)
            }
            default {
              let before := gas()
              let status := staticcall(limit, who, 0, length, 0, 0)
              let size := returndatasize()
              if iszero(size) {
                if status { if iszero(extcodesize(who)) { status := 2 } }
              }
              if iszero(status) { if iszero(lt(sub(before, gas()), limit)) { status := 3 } }
              if gt(size, 0xffffff) { size := 0xffffff }
              mstore(out, or(mul(status, 0x100000000000000000000000000000000000000000000000000000000000000), mul(size, 0x100000000000000000000000000000000000000000000000000000000)))
              if gt(size, keep) { size := keep }
              returndatacopy(add(out, 4), 0, size)
              out := add(add(out, 4), size)
            }
          }
        }
        return(0x2000, sub(out, 0x2000))
      }
    }
  }
}
