"""Conversations between clients and brokers, overheard: told in words, saved, held again."""
