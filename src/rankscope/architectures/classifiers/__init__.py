"""Image classifiers whose scores are tensor networks: a train, a sum of products, a tree."""
