"""A whole training loop on real engines, small enough to read in one sitting.

Read `loop` first: it is the order of things. Then `settings` (what is small here), `engines` (who serves), `rollout`
(samples), `admission` (which of them may be learned from), `learning` (what they are worth), `policy` and `trainer`
(weights, and checkpoints that are whole or absent), `head` (what the service remembers), `resume` (after a kill), and
`watch` (what is asserted meanwhile).
"""
