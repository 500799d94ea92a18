"""What can go wrong with an encoder that a caller has an answer to."""


class WeightsError(ValueError):
    """Weights that are absent, changed, unreadable or not those of the architecture; the message holds the cure."""


class AbsentWeightsError(WeightsError):
    """Weights that are not here and were not to be had: not copied yet, behind a gate, or no hub in reach."""


class EncoderMemoryError(RuntimeError):
    """The device ran out of memory on a batch; halve the batch size and start the work again.

    Attributes:
        images: Images in the batch that did not fit.
    """

    def __init__(self, images: int, reason: str) -> None:
        self.images = images
        super().__init__(f"out of memory on a batch of {images} image(s) ({reason}); use a smaller batch size.")
