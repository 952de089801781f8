# SPDX-License-Identifier: Apache-2.0
# The manual page of the library, from runtime/quern.h:
#     awk -v version=0.2.0 -f .ci/man_escape.awk \
#         -f .ci/man_header.awk runtime/quern.h
# Banners become sections. A function has its declaration, then the comment
# before it; structures and lists stand as they are in the header.

function code(text) {
    print ".PP\n.nf\n.RS 4"
    lines = split(text, line, "\n")
    for (i = 1; i < lines; i++)
        print escape(line[i])
    print ".RE\n.fi"
}

# Paragraphs of a comment; lines with four blanks more are code.
function prose(text,    in_code) {
    lines = split(text, line, "\n")
    in_code = 0
    for (i = 1; i < lines; i++) {
        if (line[i] ~ /^    / && !in_code) {
            print ".PP\n.nf\n.RS 4"
            in_code = 1
        } else if (line[i] !~ /^    / && in_code) {
            print ".RE\n.fi"
            in_code = 0
        }
        if (line[i] == "")
            print ".PP"
        else {
            sub(/^    /, "", line[i])
            print escape(line[i])
        }
    }
    if (in_code)
        print ".RE\n.fi"
}

BEGIN {
    printf ".TH LIBQUERN 3 \"\" \"quern %s\" \"Library Functions\"\n", version
    print ".SH NAME\nlibquern \\- grouped GEMM for mixture\\-of\\-experts models"
    print ".SH SYNOPSIS\n.nf\n.B #include <quern.h>\n.PP"
    print "Link with \\fI\\-lquern\\fR, or with \\fIpkg\\-config \\-\\-libs quern\\fR.\n.fi"
    print ".SH DESCRIPTION"
}

# "/* ------------- plan */", or the first line of a longer comment.
/^\/\* -+ [a-z ]+/ {
    title = $0
    sub(/^\/\* -+ /, "", title)
    ends = sub(/ *\*\/$/, "", title)
    print ".SH " toupper(title)
    comment = ""
    in_comment = !ends
    stays = 1
    next
}

/^\/\*/ || in_comment {
    text = $0
    if (text ~ /^\/\*/) {
        comment = ""
        stays = 0
    }
    ends = sub(/ *\*\/$/, "", text)
    sub(/^(\/\*|\*\*)$/, "", text)
    sub(/^(\/\* |\*\* |   )/, "", text)
    if (text !~ /SPDX|^quern\.h:/ && (text != "" || comment != "") && !(text == "" && ends))
        comment = comment text "\n"
    in_comment = !ends
    if (ends && comment != "" && (stays || !first)) { # of a section, or of the whole header
        prose(comment)
        comment = ""
        first = 1
    }
    next
}

# A function, or the macro that is called as one.
/^QUERN_API/ || /^#define quern_open\(/ {
    declaration = ""
    wanted = $0 ~ /^#define/ ? "\\)$" : ";"
    function_line = 1
}
function_line {
    text = $0
    sub(/^QUERN_API /, "", text)
    if ($0 ~ /^#define quern_open/) {
        text = "int quern_open(const struct quern_open_options *options, struct quern_context **ctx);"
        skip_define = 1
    }
    rest = text
    if (sub(/; *\/\*.*$/, ";", text)) { # a short comment after it
        sub(/^[^;]*; *\/\* */, "", rest)
        sub(/ *\*\/$/, "", rest)
        comment = rest "\n"
    }
    gsub(/ +/, " ", text)
    declaration = declaration (declaration == "" || declaration ~ /\*$/ ? "" : " ") text
    if (text !~ /;$/)
        next
    function_line = 0
    gsub(/^ | $/, "", declaration)
    if (declaration !~ /quern_open_abi/) {
        print ".TP\n.B " escape(declaration)
        prose_inside = comment
        gsub(/\n\n/, "\n.sp\n", prose_inside)
        n = split(prose_inside, line, "\n")
        for (i = 1; i < n; i++)
            print line[i] == ".sp" ? ".sp" : escape(line[i])
    }
    comment = ""
    next
}

skip_define || /^#define.*\\$/ && !in_list { # other macros, but for lists
    if ($0 ~ /^#define QUERN_(ERRORS|TYPES|BACKENDS|ARGS|WIDE_TYPES|NARROW_TYPES|L2S)\(/) {
        in_list = 1
        list = ""
    } else {
        skip_define = $0 ~ /\\$/
        next
    }
}

in_list {
    text = $0
    sub(/ *\\$/, "", text)
    list = list text "\n"
    if ($0 !~ /\\$/) {
        code(list)
        in_list = 0
    }
    next
}

/^(struct|enum) [a-z_0-9]+ \{/ {
    if (comment != "")
        prose("\n" comment)
    comment = ""
    block = $0 "\n"
    in_block = 1
    next
}

in_block {
    block = block $0 "\n"
    if ($0 ~ /^};/) {
        in_block = 0
        if (block !~ /#define/)
            code(block)
    }
    next
}

END {
    print ".SH SEE ALSO\n.BR quern (1)"
    print ".PP\nThe pages of\n.I share/doc/quern/docs"
    print "have the lines, their operands and the contracts that hold for all functions."
}
