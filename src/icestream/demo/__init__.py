"""The parts of `icestream demo`: orders, a pipeline that loads them, and how reads use memory."""
