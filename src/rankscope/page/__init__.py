"""The page of `rankscope open` and its server: a model, diagrams and splits in a browser."""
