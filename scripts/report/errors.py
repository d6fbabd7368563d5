"""What can go wrong in a report: one line for the user."""


class ReportError(Exception):
    """Input that cannot be reported on; the message names the file and the place in it."""
