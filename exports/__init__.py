"""Files for spreadsheets, accountants and tax tools, made of the engine's answers."""
