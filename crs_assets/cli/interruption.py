"""What a command says when a person stops it."""


class InterruptedRunError(RuntimeError):
    """A person stopped a run; nothing that was finished is lost, and the message says how to go on."""
