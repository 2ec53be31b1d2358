// What a young token may become: its functions are spelled with capitals, and everybody has twice as much.

#[starknet::contract]
mod RespelledToken {
    use starknet::ContractAddress;

    #[storage]
    struct Storage {
        balances: LegacyMap<ContractAddress, u256>,
    }

    #[external(v0)]
    fn balanceOf(self: @ContractState, account: ContractAddress) -> u256 {
        self.balances.read(account) * 2
    }
}
