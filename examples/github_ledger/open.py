"""Make the ledger's tables where they are missing, and open accounts: what a project does at each deploy.

python -m examples.github_ledger.open octocat/hello-world
"""

import sys

from examples.github_ledger.app import harness
from examples.github_ledger.ledger import create_tables, open_account


def main(repositories: list[str]) -> None:
    """Open an account for each of `repositories`, unless it has one."""
    create_tables(harness.database.engine)
    with harness.database.begin() as session:
        for repository in repositories:
            open_account(session, repository)
    print(f"the ledger is open for {', '.join(repositories) or 'nobody yet'}")


if __name__ == "__main__":
    main(sys.argv[1:])
