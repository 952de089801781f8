# SPDX-License-Identifier: Apache-2.0
# A manual page of `quern --help` or of `quern COMMAND --help`:
#     quern run --help | awk -v name=quern-run -v version=0.2.0 -f .ci/man_escape.awk -f .ci/man.awk
# The help of commands is argp's: usage, summary, options, text, "Example:", commands.

function say(text) {
    print escape(text)
}

# Words in capitals are the reader's to fill in.
function usage(text) {
    text = escape(text)
    gsub(/[A-Z][A-Z]+/, "\\fI&\\fR", text)
    return text
}

function section(title) {
    if (open_block)
        print ".fi\n.RE"
    open_block = 0
    print ".SH " title
}

# Lines that begin with blanks keep their form.
function body(line) {
    if (line ~ /^ / && !open_block) {
        print ".PP\n.RS 4\n.nf"
        open_block = 1
    } else if (line !~ /^ / && open_block) {
        print ".fi\n.RE\n.PP"
        open_block = 0
    } else if (line == "") {
        print ".PP"
        return
    }
    if (open_block)
        sub(/^  /, "", line)
    say(line)
}

function begin_page(summary) {
    printf ".TH %s 1 \"\" \"quern %s\" \"User Commands\"\n", toupper(escape(name)), version
    section("NAME")
    sub(/\.$/, "", summary)
    print escape(name) " \\- " escape(tolower(substr(summary, 1, 1)) substr(summary, 2))
    section("SYNOPSIS")
    for (i = 1; i <= usages; i++) {
        print (i > 1 ? ".br\n" : "") ".B " synopsis[i]
    }
}

# "  -o, --output=DIR           Write into DIR": the option, and its text so far.
/^ +--?[a-zA-Z?]/ && state == "options" {
    line = $0
    sub(/^ +/, "", line)
    at = match(line, /  +/)
    head = at ? substr(line, 1, at - 1) : line
    text = at ? substr(line, at + RLENGTH) : ""
    print ".TP\n\\fB" usage_bold(head)
    if (text != "")
        say(text)
    next
}

# Bold, but for the argument.
function usage_bold(head,    parts) {
    head = escape(head)
    if (split(head, parts, "=") == 2)
        return parts[1] "\\fR=\\fI" parts[2] "\\fR"
    return head "\\fR"
}

/^ +or: / || NR == 1 {
    line = $0
    sub(/^(Usage:| +or:) +/, "", line)
    synopsis[++usages] = usage(line)
    next
}

state == "" {
    begin_page($0)
    section("DESCRIPTION")
    print escape($0) ($0 ~ /\.$/ ? "" : ".")
    state = "summary"
    next
}

state == "summary" && /^$/ {
    state = command ? "options" : "text"
    if (command)
        section("OPTIONS")
    next
}

state == "options" && /^Mandatory or optional|^for any corresponding/ { next }

state == "options" && /^$/ {
    blank = 1
    next
}

state == "options" && /^ / { # goes on
    line = $0
    sub(/^ +/, "", line)
    say(line)
    next
}

state == "options" {
    section("NOTES")
    state = "text"
}

/^Environment:$/ {
    section("ENVIRONMENT")
    state = "environment"
    next
}

state == "environment" && /^  / {
    print ".TP\n.B " escape($1)
    line = $0
    sub(/^ +[^ ]+ +/, "", line)
    say(line)
    next
}

state == "environment" && /^$/ {
    section("EXIT STATUS")
    state = "text"
    next
}

/Example:$/ {
    line = $0
    sub(/ *Example:$/, "", line)
    if (line != "")
        body(line)
    section("EXAMPLES")
    next
}

{ body($0) }

END {
    section("SEE ALSO")
    printf "%s", others
    print ".BR libquern (3)"
}
