// SPDX-License-Identifier: CC0-1.0
pragma solidity ^0.8.20;

/// The contracts that wallets of the benchmark meet: what moves native coins inside calls, a token whose balances move
/// without events, one that takes a fee on the way, one whose events name nobody, a collection, and plain tokens.
contract Payer {
    /// Native coins to many, inside one call.
    function pay(address payable[] calldata to, uint256 each) external payable {
        for (uint256 k = 0; k < to.length; ++k) {
            (bool done,) = to[k].call{value: each}("");
            require(done, "pay");
        }
    }

    function fail() external payable {
        revert("on purpose");
    }

    receive() external payable {}
}

contract PlainToken {
    event Transfer(address indexed from, address indexed to, uint256 value);
    event Approval(address indexed owner, address indexed spender, uint256 value);

    string public name;
    string public symbol;
    uint8 public constant decimals = 18;
    uint256 public totalSupply;
    mapping(address => uint256) public balanceOf;
    mapping(address => mapping(address => uint256)) public allowance;

    constructor(string memory named) {
        name = named;
        symbol = named;
    }

    function mint(address to, uint256 value) external {
        totalSupply += value;
        balanceOf[to] += value;
        emit Transfer(address(0), to, value);
    }

    function airdrop(address[] calldata to, uint256 value) external {
        for (uint256 k = 0; k < to.length; ++k) {
            totalSupply += value;
            balanceOf[to[k]] += value;
            emit Transfer(address(0), to[k], value);
        }
    }

    function transfer(address to, uint256 value) external returns (bool) {
        balanceOf[msg.sender] -= value;
        balanceOf[to] += value;
        emit Transfer(msg.sender, to, value);
        return true;
    }

    function approve(address spender, uint256 value) external returns (bool) {
        allowance[msg.sender][spender] = value;
        emit Approval(msg.sender, spender, value);
        return true;
    }
}

/// Balances grow for all at once, and no event says so.
contract RebasingToken {
    event Transfer(address indexed from, address indexed to, uint256 value);

    string public constant name = "Rebasing";
    string public constant symbol = "RBS";
    uint8 public constant decimals = 18;
    uint256 public index = 1e18;
    mapping(address => uint256) public shares;

    function balanceOf(address holder) public view returns (uint256) {
        return shares[holder] * index / 1e18;
    }

    function mint(address to, uint256 value) external {
        shares[to] += value * 1e18 / index;
        emit Transfer(address(0), to, value);
    }

    function rebase(uint256 permille) external {
        index += index * permille / 1000;
    }
}

/// What arrives is less than what the event says.
contract FeeToken {
    event Transfer(address indexed from, address indexed to, uint256 value);

    string public constant name = "Fee";
    string public constant symbol = "FEE";
    uint8 public constant decimals = 18;
    mapping(address => uint256) public balanceOf;

    function mint(address to, uint256 value) external {
        balanceOf[to] += value;
        emit Transfer(address(0), to, value);
    }

    function transfer(address to, uint256 value) external returns (bool) {
        balanceOf[msg.sender] -= value;
        balanceOf[to] += value - value / 100;
        emit Transfer(msg.sender, to, value);
        return true;
    }
}

/// Balances that change and never say so after the first time.
contract SilentToken {
    event Transfer(address indexed from, address indexed to, uint256 value);

    string public constant name = "Silent";
    string public constant symbol = "SIL";
    uint8 public constant decimals = 18;
    mapping(address => uint256) public balanceOf;

    function mint(address to, uint256 value) external {
        balanceOf[to] += value;
        emit Transfer(address(0), to, value);
    }

    function take(address from, uint256 value) external {
        balanceOf[from] -= value;
    }
}

contract Collection {
    event Transfer(address indexed from, address indexed to, uint256 indexed tokenId);

    string public constant name = "Collection";
    string public constant symbol = "COL";
    mapping(uint256 => address) public ownerOf;
    mapping(address => uint256) public balanceOf;

    function mint(address to, uint256 id) external {
        require(ownerOf[id] == address(0), "minted");
        ownerOf[id] = to;
        balanceOf[to] += 1;
        emit Transfer(address(0), to, id);
    }

    function transferFrom(address from, address to, uint256 id) external {
        require(ownerOf[id] == from && msg.sender == from, "owner");
        ownerOf[id] = to;
        balanceOf[from] -= 1;
        balanceOf[to] += 1;
        emit Transfer(from, to, id);
    }

    function supportsInterface(bytes4 id) external pure returns (bool) {
        return id == 0x01ffc9a7 || id == 0x80ac58cd;
    }
}

/// Transfers of others: many events, cheap to make. Nobody reads its balances.
contract Crowd {
    event Transfer(address indexed from, address indexed to, uint256 value);

    string public constant name = "Crowd";
    string public constant symbol = "CRD";
    uint8 public constant decimals = 18;

    function burst(uint256 seed, uint256 count) external {
        unchecked {
            uint256 r = uint256(keccak256(abi.encode(seed)));
            for (uint256 k = 0; k < count; ++k) {
                r = r * 6364136223846793005 + 1442695040888963407;
                emit Transfer(address(uint160(r >> 96)), address(uint160(r >> 48)), r % 1e18);
            }
        }
    }
}
