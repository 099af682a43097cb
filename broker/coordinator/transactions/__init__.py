"""Transactions: who may write in one, and how it ends."""
