"""Client library of the Genesis trainer."""

from genesis.export import ExportError, export

__all__ = ["ExportError", "export"]
