// A token that names accounts in the keys of its events, and spells its functions with underscores: as contracts in
// Cairo 1 do, which this node cannot run. Whoever asks is given as much as he likes.

%lang starknet

from starkware.cairo.common.alloc import alloc
from starkware.cairo.common.cairo_builtins import HashBuiltin
from starkware.cairo.common.uint256 import Uint256, uint256_add, uint256_le, uint256_sub
from starkware.starknet.common.syscalls import emit_event, get_caller_address

const TRANSFER = 0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9;
const APPROVAL = 0x134692b230b9e1ffa39098904722134159652b09c5bc41d88d6698779d228ff;

@storage_var
func balances(account: felt) -> (raw: Uint256) {
}

@storage_var
func allowances(owner: felt, spender: felt) -> (raw: Uint256) {
}

@storage_var
func supply() -> (raw: Uint256) {
}

@view
func name() -> (length: felt, pending: felt, size: felt) {
    return (0, 'Young Token', 11);
}

@view
func symbol() -> (length: felt, pending: felt, size: felt) {
    return (0, 'YNG', 3);
}

@view
func decimals() -> (decimals: felt) {
    return (6,);
}

@view
func total_supply{syscall_ptr: felt*, pedersen_ptr: HashBuiltin*, range_check_ptr}() -> (raw: Uint256) {
    return supply.read();
}

@view
func balance_of{syscall_ptr: felt*, pedersen_ptr: HashBuiltin*, range_check_ptr}(account: felt) -> (raw: Uint256) {
    return balances.read(account);
}

@view
func allowance{syscall_ptr: felt*, pedersen_ptr: HashBuiltin*, range_check_ptr}(owner: felt, spender: felt) -> (
    raw: Uint256
) {
    return allowances.read(owner, spender);
}

@external
func mint{syscall_ptr: felt*, pedersen_ptr: HashBuiltin*, range_check_ptr}(account: felt, raw: Uint256) {
    alloc_locals;
    let (had) = balances.read(account);
    let (has, _) = uint256_add(had, raw);
    balances.write(account, has);
    let (before) = supply.read();
    let (now, _) = uint256_add(before, raw);
    supply.write(now);
    said(TRANSFER, 0, account, raw);
    return ();
}

@external
func transfer{syscall_ptr: felt*, pedersen_ptr: HashBuiltin*, range_check_ptr}(recipient: felt, raw: Uint256) -> (
    success: felt
) {
    alloc_locals;
    let (sender) = get_caller_address();
    let (had) = balances.read(sender);
    let (enough) = uint256_le(raw, had);
    assert enough = 1;
    let (left) = uint256_sub(had, raw);
    balances.write(sender, left);
    let (other) = balances.read(recipient);
    let (has, _) = uint256_add(other, raw);
    balances.write(recipient, has);
    said(TRANSFER, sender, recipient, raw);
    return (1,);
}

@external
func approve{syscall_ptr: felt*, pedersen_ptr: HashBuiltin*, range_check_ptr}(spender: felt, raw: Uint256) -> (
    success: felt
) {
    alloc_locals;
    let (owner) = get_caller_address();
    allowances.write(owner, spender, raw);
    said(APPROVAL, owner, spender, raw);
    return (1,);
}

func said{syscall_ptr: felt*}(event: felt, one: felt, other: felt, raw: Uint256) {
    alloc_locals;
    let (keys: felt*) = alloc();
    assert keys[0] = event;
    assert keys[1] = one;
    assert keys[2] = other;
    let (data: felt*) = alloc();
    assert data[0] = raw.low;
    assert data[1] = raw.high;
    emit_event(3, keys, 2, data);
    return ();
}
