// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {ERC721} from "@openzeppelin/contracts/token/ERC721/ERC721.sol";

/// An OpenZeppelin ERC-721 collection that anyone may mint.
contract Collectible is ERC721 {
    constructor(string memory name_, string memory symbol_) ERC721(name_, symbol_) {}

    function mint(address to, uint256 id) external {
        _mint(to, id);
    }

    function burn(uint256 id) external {
        _update(address(0), id, msg.sender);
    }

    function _baseURI() internal pure override returns (string memory) {
        return "ipfs://collectible/";
    }
}
