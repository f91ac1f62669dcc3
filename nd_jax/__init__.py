"""Pretrain small neural debuggers from scratch: record, sample, tokenise, train, decode, evaluate."""

__version__ = "0.1.0"
