# SPDX-License-Identifier: Apache-2.0
"""The program: python -m quern COMMAND [ARGUMENT...]"""

import os
import sys

from quern import find


def main():
    os.execv(find("../bin/quern"), ["quern", *sys.argv[1:]])


if __name__ == "__main__":
    main()
