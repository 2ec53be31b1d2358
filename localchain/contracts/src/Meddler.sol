// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

interface IToken {
    function transfer(address to, uint256 raw) external returns (bool);
}

/// A token whose balanceOf does more than tell a balance, or tells another one to whoever looks otherwise.
contract Meddler {
    enum Kind { Moves, TriesToMove, Counts, Remembers, LooksAtGas, LooksAtCaller, LooksAtCode }

    Kind private immutable kind;
    IToken private immutable loot;
    uint256 private count;

    constructor(Kind kind_, IToken loot_) {
        kind = kind_;
        loot = loot_;
    }

    function balanceOf(address account) external returns (uint256) {
        if (kind == Kind.Moves) return give(account);
        if (kind == Kind.TriesToMove) {
            try this.give(account) returns (uint256 raw) { return raw; } catch { return 5; }
        }
        if (kind == Kind.Counts) return ++count;
        if (kind == Kind.Remembers) {
            uint256 seen;
            assembly { seen := add(tload(0), 1) tstore(0, seen) }
            return seen;
        }
        if (kind == Kind.LooksAtGas) return gasleft() > 2_000_000 ? 1_000 : 7;
        if (kind == Kind.LooksAtCaller) return uint256(uint160(msg.sender));
        return msg.sender.code.length;
    }

    /// One unit of a token that others hold honestly.
    function give(address account) public returns (uint256) {
        loot.transfer(account, 10 ** 18);
        return 10 ** 18;
    }
}
