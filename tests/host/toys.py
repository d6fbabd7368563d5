"""The sizes and bytes of the toy bundles of toy_bundles.py, for tests that need no torch, which takes seconds to import."""

CONTEXT, LAYERS, HEADS, HEAD_DIM, VOCAB = 256, 2, 2, 8, 257
WIDTH = HEADS * HEAD_DIM
END_OF_TEXT = 256
CYCLE = "é€𝄞".encode() + b"\xff "
