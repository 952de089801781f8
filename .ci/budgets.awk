# SPDX-License-Identifier: Apache-2.0
# Budgets of the code: awk -f budgets.awk -v width=80 [-v longest=60] FILE...
#
# A function is what lies between a "{" and a "}" in the first column. Lines in
# its body are counted; 95 of 100 functions stay within 60 lines, the median
# within 15, a file within 600, and no line is wider than `width`.

function complain(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text > "/dev/stderr"
    bad = 1
}

function sort_lengths(   i, j, x) {
    for (i = 2; i <= functions; i++) {
        x = lengths[i]
        for (j = i - 1; j >= 1 && lengths[j] > x; j--)
            lengths[j + 1] = lengths[j]
        lengths[j + 1] = x
    }
}

BEGIN {
    if (!longest)
        longest = 120
}

FNR == 601 { complain("a file has at most " FNR - 1 " lines") }
length($0) > width { complain("wider than " width " columns") }
/[ \t]$/ { complain("blanks at the end of the line") }
/\t/ { complain("a tab") }

/^{/ { start = FNR }
/^}/ && start && FILENAME !~ /\.lua$/ {
    lengths[++functions] = FNR - start - 1
    if (lengths[functions] > longest)
        complain("a function of " lengths[functions] " lines, over " longest)
    start = 0
}
# Lines that hold any part of a comment.
(FILENAME ~ /\.lua$/ ? /--/ : /\/\*|(^|[ \t])\/\/[^$]/ || block) { comments++ }
/\/\*/ { block = 1 }
/\*\// { block = 0 }
FNR == 1 { block = /\/\*/ && !/\*\// }
/[^ \t]/ { lines++ }

END {
    sort_lengths()
    median = lengths[int((functions + 1) / 2)]
    most = lengths[int(functions * 0.95)]
    printf "budgets: %d lines, %d%% comments, %d functions: median %d, 95%% within %d\n", \
        lines, 100 * comments / lines, functions, median, most
    if (median > 15) {
        print "check: the median function has more than 15 lines" > "/dev/stderr"
        bad = 1
    }
    if (most > 60) {
        print "check: more than 5% of the functions have over 60 lines" > "/dev/stderr"
        bad = 1
    }
    exit bad
}
