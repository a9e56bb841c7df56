"""The common benchmark model for other checkers, and its definition in plain Python.

`reference` says what the model means. `promela` and `murphi` write it for SPIN and Rumur; `plain`, `minicheck_peer` and
`musil_peer` run it in Python; `handwritten.c` is what a person would write in C for this model and no other.
"""
