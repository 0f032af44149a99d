"""AvataRL: the loss, its rewards, and the losses to compare it with."""
