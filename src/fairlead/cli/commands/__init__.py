"""The commands, a file for what they are about: what each takes, and what it does with that. Nothing heavy is imported here."""
