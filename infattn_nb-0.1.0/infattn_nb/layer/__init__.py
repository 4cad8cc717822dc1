"""One attention layer: what enters, the recipe, the law of long rows, the literal oracle."""
