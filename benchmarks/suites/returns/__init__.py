"""The suite `returns`: GAE against its loop, its peers and its promises."""
