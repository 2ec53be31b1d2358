"""Approvals of accounts, and the allowances that are left of them."""
