"""Bridges to the frameworks whose models people prune: ``dysens.adapters.ocr`` and ``dysens.adapters.det``.

Nothing is imported here: each bridge needs packages that the other does not.
"""
