create table account (id text primary key, token text, address text, balance numeric);
create table allowance (id text primary key, token text, owner text, spender text, amount numeric);
create table transfer_event
  (id text primary key, token text, "from" text, "to" text, amount numeric, block int4, timestamp int8);
create table approval_event
  (id text primary key, token text, owner text, spender text, amount numeric, block int4, timestamp int8);
