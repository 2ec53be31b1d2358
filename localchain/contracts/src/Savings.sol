// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {ERC20, IERC20, ERC4626} from "@openzeppelin/contracts/token/ERC20/extensions/ERC4626.sol";
import {Token} from "./Token.sol";

/// An ERC-4626 vault that promises its interest by the second and mints it only when somebody deposits, redeems or calls
/// `accrue`, as Angle's savings contracts do: between accruals it has less than it promises.
contract Savings is ERC4626 {
    uint256 private constant RAY = 10 ** 27;
    uint256 private immutable rate; // a second, of what was there at the last accrual, in RAY
    uint256 private accrued;

    constructor(IERC20 asset_, uint256 rate_) ERC4626(asset_) ERC20("Savings", "SV") {
        rate = rate_;
        accrued = block.timestamp;
    }

    function totalAssets() public view override returns (uint256) {
        uint256 there = super.totalAssets();
        return there + (there * rate * (block.timestamp - accrued)) / RAY;
    }

    function accrue() public {
        uint256 interest = totalAssets() - super.totalAssets();
        accrued = block.timestamp;
        Token(asset()).mint(address(this), interest);
    }

    function _deposit(address caller, address receiver, uint256 assets, uint256 shares) internal override {
        accrue();
        super._deposit(caller, receiver, assets, shares);
    }

    function _withdraw(address caller, address receiver, address owner, uint256 assets, uint256 shares)
        internal
        override
    {
        accrue();
        super._withdraw(caller, receiver, owner, assets, shares);
    }
}
