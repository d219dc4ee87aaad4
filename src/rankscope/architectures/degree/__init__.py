"""Networks of chosen degree: products of linear maps, chains of attention, mixers."""
