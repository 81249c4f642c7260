"""An explicit-state model of the protocol: every interleaving of a bounded world, searched exhaustively."""
