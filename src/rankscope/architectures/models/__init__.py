"""Networks as people use them, with the names of their public weights; `catalogue` lists them."""
