"""Events held against the specification: the one part of this package, beside the command line, that reads it."""
