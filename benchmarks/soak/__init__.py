"""A deployment on real engines for a long time, with faults and with violations that are injected."""
