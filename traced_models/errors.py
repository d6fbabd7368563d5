"""What can go wrong while exporting: one line for the user, and the exit code the host uses too."""


class ExportError(Exception):
    """A failure that is reported as one line on stderr."""

    exit_code = 1


class UsageError(ExportError):
    """The command line is wrong."""

    exit_code = 2


class ModelError(ExportError):
    """The model cannot be read, or is none that this exporter knows."""

    exit_code = 3


class PluginError(ExportError):
    """The operator library is missing or does not fit."""

    exit_code = 4
