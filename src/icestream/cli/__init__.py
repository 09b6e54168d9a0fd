"""The command line: the library's verbs, with text for people and JSON for programs."""
