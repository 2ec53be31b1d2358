// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {ERC20, IERC20, ERC4626} from "@openzeppelin/contracts/token/ERC20/extensions/ERC4626.sol";

/// An OpenZeppelin ERC-4626 vault: a plain transfer to it is its yield.
contract Vault is ERC4626 {
    constructor(IERC20 asset_, string memory name_, string memory symbol_) ERC4626(asset_) ERC20(name_, symbol_) {}
}
