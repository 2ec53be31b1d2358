"""Profit and loss: what came and left, matched lot by lot; pure, exact, the same result for the same entries."""
