"""Small worlds whose right answers are known in closed form, to test trainers with."""
