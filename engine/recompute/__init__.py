"""Values of many portfolios, computed again from stored holdings and stored prices."""
