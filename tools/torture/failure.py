"""What a campaign raises if something did not hold."""


class Failure(Exception):
    """A promise that was broken, in words; the seed that led here is added by the caller."""
