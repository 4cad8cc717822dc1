"The engine: streams, branches, blocks, walks, there and back."
