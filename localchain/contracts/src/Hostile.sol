// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

/// Answers each selector with whatever bytes it was told to, and logs whatever it is told to.
contract Hostile {
    enum Kind { Nothing, Return, Revert, Loop, Invalid }

    /// `size` bytes are answered: `data`, cut off or followed by zeros.
    struct Answer { bytes4 selector; Kind kind; uint256 size; bytes data; }

    mapping(bytes4 => Answer) private answers;

    constructor(Answer[] memory given) {
        for (uint256 i; i < given.length; ++i) answers[given[i].selector] = given[i];
    }

    function log(bytes32[] calldata topics, bytes calldata data) external {
        bytes memory copy = data;
        bytes32[4] memory t;
        for (uint256 i; i < topics.length; ++i) t[i] = topics[i];
        assembly ("memory-safe") {
            let start := add(copy, 32)
            let size := mload(copy)
            switch topics.length
            case 0 { log0(start, size) }
            case 1 { log1(start, size, mload(t)) }
            case 2 { log2(start, size, mload(t), mload(add(t, 32))) }
            case 3 { log3(start, size, mload(t), mload(add(t, 32)), mload(add(t, 64))) }
            default { log4(start, size, mload(t), mload(add(t, 32)), mload(add(t, 64)), mload(add(t, 96))) }
        }
    }

    fallback() external payable {
        Answer memory answer = answers[msg.sig];
        Kind kind = answer.kind;
        bytes memory data = answer.data;
        uint256 size = answer.size;
        if (kind == Kind.Loop) while (true) {}
        if (kind == Kind.Invalid) assembly { invalid() }
        // Nothing was allocated after `data`, so what follows it is zero.
        if (kind == Kind.Revert) assembly { revert(add(data, 32), size) }
        assembly { return(add(data, 32), size) }
    }
}
