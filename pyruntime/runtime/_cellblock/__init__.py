"""The sandbox worker's side of a session: cells, streams, hook and wire.

Standard library only, CPython 3.9 to 3.14. Everything here runs beside the
guest's code and can be patched by it: nothing in this package is a boundary.
The launcher trusts none of what it says.
"""
