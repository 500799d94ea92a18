"""What can go wrong with an encoder that a caller has an answer to."""

from collections.abc import Sequence


class WeightsError(ValueError):
    """Weights that are absent, changed, unreadable or not those of the architecture; the message holds the cure."""


class AbsentWeightsError(WeightsError):
    """Weights that are not here and were not to be had: not copied yet, behind a gate, or no hub in reach.

    Attributes:
        what: What is missing, and what to do.
        commands: Shell commands that do it, each alone; whoever shows them leaves them whole, to be copied.
    """

    def __init__(self, what: str, commands: Sequence[str] = ()) -> None:
        super().__init__(f"{what} {' or: '.join(commands)}" if commands else what)
        self.what = what
        self.commands = tuple(commands)


class EncoderMemoryError(RuntimeError):
    """The device ran out of memory on a batch; halve the batch size and start the work again.

    Attributes:
        images: Images in the batch that did not fit.
    """

    def __init__(self, images: int, reason: str) -> None:
        self.images = images
        super().__init__(f"out of memory on a batch of {images} image(s) ({reason}); use a smaller batch size.")
