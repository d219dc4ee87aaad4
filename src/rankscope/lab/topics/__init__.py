"""Topics that `rankscope explain` explains: a statement, a run and a picture each."""
