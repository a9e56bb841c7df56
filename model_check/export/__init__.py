"""A protocol in the languages of other checkers, so that nobody has to trust this one."""
