"""A stage for tests of processes, in a module that they can import."""

import os
import time

from crs_assets.stages.stage import Stage


class Told(Stage):
    """A stage that needs no store: it waits, or it ends its process."""

    name = "told"
    code_version = "1"
    side_by_side = True

    def partitions(self, _):
        return iter(())

    def inputs(self, *_):
        return {}

    def build(self, *_):
        raise NotImplementedError

    def ensure(self, _, what):
        if what == "die":
            os._exit(1)
        if what.startswith("wait"):
            time.sleep(60)
        return what
