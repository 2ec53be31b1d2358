// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {ERC1155} from "@openzeppelin/contracts/token/ERC1155/ERC1155.sol";

/// An OpenZeppelin ERC-1155 collection that anyone may mint.
contract Edition is ERC1155 {
    constructor(string memory uri_) ERC1155(uri_) {}

    function mint(address to, uint256 id, uint256 raw) external {
        _mint(to, id, raw, "");
    }

    function mintBatch(address to, uint256[] calldata ids, uint256[] calldata raws) external {
        _mintBatch(to, ids, raws, "");
    }
}
