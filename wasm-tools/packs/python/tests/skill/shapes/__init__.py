from .square import area

__all__ = ["area"]
