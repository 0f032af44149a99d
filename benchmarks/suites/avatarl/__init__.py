"""The suite `avatarl`: the loss and its gradient against the looped original and what followed."""
