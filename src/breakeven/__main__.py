"""`python -m breakeven` is the `breakeven` command; the runner starts its own children this way."""

from breakeven.cli import main

if __name__ == "__main__":
    main()
