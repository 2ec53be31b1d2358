// SPDX-License-Identifier: GPL-2.0-or-later
pragma solidity 0.6.12;

import "@uniswap/v3-core/contracts/libraries/TickMath.sol";
import "@uniswap/v3-periphery/contracts/libraries/LiquidityAmounts.sol";

/// Uniswap V3's libraries, to be asked.
contract ConcentratedLiquidity {
    function sqrtPrice(int24 tick) external pure returns (uint160) {
        return TickMath.getSqrtRatioAtTick(tick);
    }

    function amounts(uint160 price, int24 lower, int24 upper, uint128 liquidity)
        external
        pure
        returns (uint256 raw0, uint256 raw1)
    {
        uint160 low = TickMath.getSqrtRatioAtTick(lower);
        return LiquidityAmounts.getAmountsForLiquidity(price, low, TickMath.getSqrtRatioAtTick(upper), liquidity);
    }
}
