"""Factories of drivers, as a user's module has them. Nothing here is ever started."""


class Own:
    class Inner:
        pass


def factory(rank, world_size):
    return Own()
