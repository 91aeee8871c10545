"""Accounts, groups, tokens, and the rules of who may do what. Asked by the service, never by the scheduler."""
