"""The topics of `rankscope explain`; `rankscope.experiments.catalogue` lists them all."""
