"""The paper's proof, executable."""
