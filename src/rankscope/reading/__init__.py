"""Reading modules: one trace of a forward pass, and what each of its operations means."""
