"""Language models by AvataRL."""
