"""How far the limit is, how fast it is reached, what may be changed."""
