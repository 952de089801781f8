# SPDX-License-Identifier: Apache-2.0
# Text as it is, for man.awk and man_header.awk.

function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/^[.']/, "\\\\\\&&", text)
    return text
}
