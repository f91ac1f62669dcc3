"""The one exception that means: the user can mend this."""


class UserError(Exception):
    """A mistake in what the user gave: says what is wrong, where, and how to mend it.

    The command line shows its message as it is, without a traceback, and exits with status 2.
    """
