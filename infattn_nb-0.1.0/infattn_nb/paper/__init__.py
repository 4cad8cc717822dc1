"""The paper's experiments: figures, tables, the command."""
