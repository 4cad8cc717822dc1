"""One attention layer: its tokens, its scores, its law at every width."""
