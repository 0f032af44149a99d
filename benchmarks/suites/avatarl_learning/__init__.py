"""The suite `avatarl_learning`: students of every loss at equal tokens, their critic, a trigram."""
