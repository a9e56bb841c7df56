"""`python -m reef_ref.scenarios`."""

from reef_ref.scenarios.cli import app

if __name__ == "__main__":
    app(prog_name="python -m reef_ref.scenarios")
