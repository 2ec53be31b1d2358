// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

interface INames {
    function resolver(bytes32 node) external view returns (address);
}

/// The entry point to names of ENSIP-23, as far as names lie on the chain: no wildcards, no gateways. The published
/// one is in no package that can be had; the registry, the registrars and the resolvers behind it are the published ones.
contract UniversalResolver {
    INames public immutable registry;

    error ResolverNotFound(bytes name);
    error ResolverError(bytes errorData);

    constructor(INames registry_) {
        registry = registry_;
    }

    function findResolver(bytes calldata name) public view returns (address, bytes32, uint256) {
        bytes32 node = namehash(name, 0);
        return (registry.resolver(node), node, 0);
    }

    function resolve(bytes calldata name, bytes calldata data) external view returns (bytes memory, address) {
        (address resolver,,) = findResolver(name);
        if (resolver.code.length == 0) revert ResolverNotFound(name);
        (bool ok, bytes memory result) = resolver.staticcall(data);
        if (!ok) revert ResolverError(result);
        return (result, resolver);
    }

    function namehash(bytes calldata name, uint256 at) internal pure returns (bytes32) {
        uint256 size = uint8(name[at]);
        if (size == 0) return bytes32(0);
        uint256 next = at + 1 + size;
        return keccak256(abi.encodePacked(namehash(name, next), keccak256(name[at + 1:next])));
    }
}
