# SPDX-License-Identifier: Apache-2.0
"""A change of others' code that can be undone."""


class Switch:
    """A switch that is on. undo() turns it off, as the end of a `with` block does."""

    def __init__(self, undo):
        self._undo = undo

    def undo(self):
        undo, self._undo = self._undo, None
        if undo:
            undo()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.undo()
