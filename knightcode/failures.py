"""Exception groups, seen from where one error is wanted."""


def first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception in a group that is not itself a group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
