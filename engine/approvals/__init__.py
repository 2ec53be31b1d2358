"""Approvals that accounts gave, and what they still allow."""
