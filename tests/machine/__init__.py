"""A state machine over a real database: every step is done by the product and by a small model of its laws."""
