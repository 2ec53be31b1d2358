// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

/// A wallet that is a contract: its owners call it, and it calls others in their name.
contract Wallet {
    mapping(address => bool) public isOwner;

    event AddedOwner(address owner);

    error NotAnOwner(address caller);

    modifier onlyOwner() {
        if (!isOwner[msg.sender]) revert NotAnOwner(msg.sender);
        _;
    }

    constructor(address[] memory owners) payable {
        for (uint256 i = 0; i < owners.length; i++) isOwner[owners[i]] = true;
    }

    receive() external payable {}

    function addOwner(address owner) external onlyOwner {
        isOwner[owner] = true;
        emit AddedOwner(owner);
    }

    function execTransaction(address to, uint256 value, bytes calldata data) external onlyOwner {
        (bool success, bytes memory result) = to.call{value: value}(data);
        if (!success) assembly { revert(add(result, 32), mload(result)) }
    }
}
