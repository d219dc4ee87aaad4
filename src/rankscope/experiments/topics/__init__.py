"""The topics of `rankscope explain`; `catalogue` has them all."""
