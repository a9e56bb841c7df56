"""Examples that run: `examples.rl_loop` is a whole training loop; `configs` holds configurations."""
