// A token of today's kind: parties in the keys of its events, functions spelled with underscores, a name in three felts.
// Whoever asks is given as much as he likes, a message from Ethereum brings some, and anybody may replace its class.

#[starknet::contract]
mod YoungToken {
    use result::ResultTrait;
    use starknet::{
        ClassHash, ContractAddress, contract_address_const, get_caller_address, replace_class_syscall
    };

    #[storage]
    struct Storage {
        balances: LegacyMap<ContractAddress, u256>,
        allowances: LegacyMap<(ContractAddress, ContractAddress), u256>,
        supply: u256,
    }

    #[event]
    #[derive(Drop, starknet::Event)]
    enum Event {
        Transfer: Transfer,
        Approval: Approval,
    }

    #[derive(Drop, starknet::Event)]
    struct Transfer {
        #[key]
        from: ContractAddress,
        #[key]
        to: ContractAddress,
        value: u256,
    }

    #[derive(Drop, starknet::Event)]
    struct Approval {
        #[key]
        owner: ContractAddress,
        #[key]
        spender: ContractAddress,
        value: u256,
    }

    #[external(v0)]
    fn name(self: @ContractState) -> (felt252, felt252, felt252) {
        (0, 'Young Token', 11)
    }

    #[external(v0)]
    fn symbol(self: @ContractState) -> (felt252, felt252, felt252) {
        (0, 'YNG', 3)
    }

    #[external(v0)]
    fn decimals(self: @ContractState) -> u8 {
        6
    }

    #[external(v0)]
    fn total_supply(self: @ContractState) -> u256 {
        self.supply.read()
    }

    #[external(v0)]
    fn balance_of(self: @ContractState, account: ContractAddress) -> u256 {
        self.balances.read(account)
    }

    #[external(v0)]
    fn allowance(self: @ContractState, owner: ContractAddress, spender: ContractAddress) -> u256 {
        self.allowances.read((owner, spender))
    }

    #[external(v0)]
    fn mint(ref self: ContractState, account: ContractAddress, raw: u256) {
        self.give(account, raw);
    }

    #[external(v0)]
    fn transfer(ref self: ContractState, recipient: ContractAddress, raw: u256) -> bool {
        let sender = get_caller_address();
        self.balances.write(sender, self.balances.read(sender) - raw);
        self.balances.write(recipient, self.balances.read(recipient) + raw);
        self.emit(Transfer { from: sender, to: recipient, value: raw });
        true
    }

    #[external(v0)]
    fn approve(ref self: ContractState, spender: ContractAddress, raw: u256) -> bool {
        let owner = get_caller_address();
        self.allowances.write((owner, spender), raw);
        self.emit(Approval { owner, spender, value: raw });
        true
    }

    #[external(v0)]
    fn upgrade(ref self: ContractState, class: ClassHash) {
        replace_class_syscall(class).unwrap();
    }

    #[l1_handler]
    fn handle_deposit(ref self: ContractState, from_address: felt252, account: ContractAddress, raw: u256) {
        self.give(account, raw);
    }

    #[generate_trait]
    impl Inner of InnerTrait {
        fn give(ref self: ContractState, account: ContractAddress, raw: u256) {
            self.balances.write(account, self.balances.read(account) + raw);
            self.supply.write(self.supply.read() + raw);
            self.emit(Transfer { from: contract_address_const::<0>(), to: account, value: raw });
        }
    }
}
