"""The repository itself: its shape, its dependencies, what its pages say."""
