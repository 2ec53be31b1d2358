"""Quoted prices with the reasons for each, rates of currencies, and the conversion of values."""
