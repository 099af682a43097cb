"""Record batches of every format to Arrow columns, and back, without an object per record."""
