"""How good a model is at its task, dense or compressed: every score takes the model first."""
