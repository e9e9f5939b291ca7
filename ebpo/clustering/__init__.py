"""Clustered sampling: topics, difficulty, and the orders that are made of them. Nothing is imported here."""
